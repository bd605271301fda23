"""The released artefact: its format, its one writer, its readers; `opening` opens one."""
