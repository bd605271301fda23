"""A PostgreSQL server of the test's own: on the loopback, in a temporary folder, with a password.

It runs as an unprivileged user, for PostgreSQL refuses to run as root. Debian keeps `initdb` and
`pg_ctl` out of the PATH.
"""

from __future__ import annotations

import itertools
import os
import pwd
import secrets
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Any

ROLE = "steward"


def binaries() -> Path | None:
    """The folder of the newest `initdb`, or None where PostgreSQL is not installed."""
    found = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3])
    )
    on_path = shutil.which("initdb")
    if found:
        return found[-1].parent
    return Path(on_path).resolve().parent if on_path else None


class Server:
    """Start with `start`; every call of `database` gives the URL of a fresh database."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder, self._programs = folder, programs
        self.password = secrets.token_hex(16)
        self.port = 0
        self._numbers = itertools.count()
        self._reused: str | None = None

    def start(self) -> None:
        if os.geteuid() == 0:
            shutil.chown(self.folder, "nobody")
            self.folder.parent.chmod(0o755)
        given = self.folder / "password"
        given.write_text(self.password)
        given.chmod(0o644)
        self.run("initdb", "-D", self.data, "-U", ROLE, "--auth=scram-sha-256", "-N",
                 f"--pwfile={given}", "--encoding=UTF8", "--locale=C")  # fmt: skip
        with (self.data / "postgresql.conf").open("a") as settings:
            settings.write(
                "listen_addresses = '127.0.0.1'\n"
                f"unix_socket_directories = '{self.folder}'\nfsync = off\nmax_connections = 60\n"
                "log_statement = all\n"
            )
        for attempts_left in (2, 1, 0):
            self.port = _free_port()  # which another process may take before the server does
            with (self.data / "postgresql.conf").open("a") as settings:
                settings.write(f"port = {self.port}\n")
            try:
                self.control("start")
            except subprocess.CalledProcessError:
                if not attempts_left:
                    raise
            else:
                break

    def control(self, action: str, *arguments: str) -> None:
        """`pg_ctl`: start, or stop or restart at once, as after a power cut."""
        log = str(self.folder / "log")
        self.run("pg_ctl", "-D", self.data, "-l", log, "-w", *arguments, action)

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def environment(self) -> dict[str, str]:
        return {"PGPASSWORD": self.password}

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def url(self, name: str) -> str:
        return f"postgresql+psycopg://{ROLE}@127.0.0.1:{self.port}/{name}"

    def database(self) -> str:
        name = f"ledger_{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def emptied(self) -> str:
        """The URL of one database, emptied: it is sooner there than a new one, and less to copy."""
        if self._reused is None:
            self._reused = self.database()
        name = self._reused.rpartition("/")[2]
        self.disconnect(name)
        self.execute(f"ALTER DATABASE {name} RESET ALL", name)
        self.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public", name)
        self.execute("GRANT USAGE ON SCHEMA public TO PUBLIC", name)  # as in a new database
        return self._reused

    def disconnect(self, name: str) -> None:
        """End all other connections to a database."""
        self.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            f"WHERE datname = '{name}' AND pid != pg_backend_pid()"
        )

    def execute(self, statement: str, name: str = "postgres") -> list[tuple[Any, ...]]:
        """Run a statement past the ledger, as whoever owns the database could."""
        import psycopg

        with psycopg.connect(
            host="127.0.0.1", port=self.port, user=ROLE, password=self.password, dbname=name,
            autocommit=True,
        ) as connection:  # fmt: skip
            answer = connection.execute(statement)
            return answer.fetchall() if answer.description else []

    def run(self, program: str, *arguments: object, **options: Any) -> None:
        """Run a program of PostgreSQL, or any by its path, as the user who owns the server."""
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            options = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": [], **options}
        subprocess.run(
            [str(self._programs / program), *map(str, arguments)],
            check=True, timeout=300, cwd=self.folder, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, **options,
        )  # fmt: skip


def start() -> Server | None:
    """A running server, or None where PostgreSQL is not installed; `stop` it."""
    programs = binaries()
    if programs is None:
        return None
    folder = Path(tempfile.mkdtemp(prefix="dbern-postgres-"), "server")
    folder.mkdir()
    server = Server(folder, programs)
    server.start()
    return server


def stop(server: Server) -> None:
    server.control("stop", "-m", "immediate")
    shutil.rmtree(server.folder.parent)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
