"""``python -m dbern`` is the command line."""

from dbern.cli.main import main

if __name__ == "__main__":
    main()
