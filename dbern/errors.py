"""The one tree of errors: each has a stable ``kind`` and the exit code the command line returns."""

from __future__ import annotations

import errno
import os
import traceback
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_OUT_OF_MEMORY_TEXTS = ("failed to map segment", "cannot allocate memory", "Cannot allocate memory")
"""What the loader of shared libraries says where memory is short."""

NO_FILE_ERRNOS = (
    *(errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.EPERM),
    *(errno.ELOOP, errno.ENAMETOOLONG),
)
"""Of failures to read that stay: any other may be gone when the same command runs again."""

_CONTROL_CATEGORIES = (
    "Cc",
    "Cf",
    "Cs",
    "Zl",
    "Zp",
)  # controls, directions, halves of a letter, line ends


def printable(text: str, keep: str = "") -> str:
    """Escape characters that a terminal would obey, except for `keep`."""
    if text.isprintable():
        return text
    return "".join(
        letter.encode("unicode_escape").decode()
        if letter not in keep and unicodedata.category(letter) in _CONTROL_CATEGORIES
        else letter
        for letter in text
    )


class DbernError(Exception):
    """Anything that stops ``dbern``; the message says what was wrong, where, and what mends it.

    No message ever holds a record's value, a key, or a number derived from either.
    """

    kind = "failure"
    exit_code = 1

    def __str__(self) -> str:
        """Return the message; names in it may be a stranger's, and no terminal obeys it."""
        return printable(super().__str__(), keep="\n\t")


class ReleaseError(DbernError):
    """A release that started could not finish; the same command goes on from where it stopped."""

    kind = "release-failed"


class SpecError(DbernError):
    """The specification or the command line asks for something impossible or misspelt."""

    kind = "spec"
    exit_code = 2


class OtherDataError(SpecError):
    """Other data than those that a published release was made from; it stays as it is."""

    kind = "other-data"


class BudgetError(DbernError):
    """The ledger refuses the charge: not granted, not enough left, or granted on other terms."""

    kind = "budget-refused"
    exit_code = 3


class EnvironmentRefusedError(DbernError):
    """This installation, cluster or ledger cannot run the command as it stands."""

    kind = "environment"
    exit_code = 4


class OtherVersionError(EnvironmentRefusedError):
    """A release that another version of this package began; other releases go on."""

    kind = "other-version"


class ShortageError(EnvironmentRefusedError):
    """A process may use too little of what it runs on.

    `what` is "memory", "files" or "threads", `place` the file that was being read, if any.
    """

    def __init__(self, what: str, location: str = "") -> None:
        remedy = {
            "memory": "there is too little memory. Raise the limit (of a container, a worker or "
            "ulimit -v), or write shorter texts, or fewer and larger row groups,",
            "files": "too many files are open. Raise the limit (ulimit -n 1024)",
            "threads": "no more threads can be started. Raise the limits of memory and threads (of "
            "a container, ulimit -v, ulimit -u)",
        }[what]
        super().__init__(f"{location and location + ': '}{remedy} and run the same command again.")
        self.what = what


def shortage_of(error: BaseException, location: str = "") -> ShortageError | None:
    """The shortage that an exception reports, if it reports one."""
    for cause in _causes(error):
        match cause:
            case MemoryError() | OSError(errno=errno.ENOMEM):
                return ShortageError("memory", location)
            case ImportError() if any(text in str(cause) for text in _OUT_OF_MEMORY_TEXTS):
                return ShortageError("memory", location)
            case OSError(errno=errno.EMFILE | errno.ENFILE):
                return ShortageError("files", location)
            case RuntimeError() if str(cause) == "can't start new thread":
                return ShortageError("threads", location)
    return None


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and those that it was raised from, as a cluster's that cannot start is."""
    seen: list[BaseException] = []
    following: BaseException | None = error
    while following is not None and following not in seen:
        seen.append(following)
        yield following
        following = following.__cause__


@contextmanager
def optional_import(hint: str) -> Iterator[None]:
    """Refuse, saying what to install, where an import within fails."""
    try:
        yield
    except ImportError:
        raise EnvironmentRefusedError(hint) from None


class InternalError(DbernError):
    """An error that nobody foresaw, reported by its type and the lines of code that it passed."""

    kind = "internal"


def without_text(error: Exception) -> DbernError:
    """Report an error that is none of ours without its text, which may quote a record.

    There remain its kind among Python's, for the name of another may be made of a record too, what
    the system calls its number, and the lines of code that it passed.
    """
    if too_little := shortage_of(error):
        return too_little
    number = error.errno if isinstance(error, OSError) else None
    reason = f", {os.strerror(number)}" if number is not None else ""
    kind = next(kind for kind in type(error).__mro__ if kind.__module__ == "builtins")
    lines = "".join(traceback.format_tb(error.__traceback__))
    return InternalError(
        f"internal error: {kind.__name__}{reason} (its text is withheld, it may quote a record)\n"
        f"{lines}please report this"
    )


@contextmanager
def withhold_texts() -> Iterator[None]:
    """Raise errors of ours as they are, and any other without its text."""
    try:
        yield
    except DbernError:
        raise
    except Exception as error:  # noqa: BLE001 -- whatever it is
        raise without_text(error) from None


class IntegrityError(DbernError):
    """Something is not what it was recorded to be: a store, an input file, a staged center."""

    kind = "integrity"
    exit_code = 5


_RAISED_BY_CONTENT = (ArithmeticError, LookupError, RecursionError, TypeError, ValueError)
"""What content that nothing checked makes code raise; any other exception is a fault of ours."""


_OF_A_STORE = "Ask whoever published it for it again; where you trust that it is as released"


@contextmanager
def unreadable_refused(where: str, mend: str = _OF_A_STORE) -> Iterator[None]:
    """Refuse, by an IntegrityError, what others wrote where reading it raises no error of ours.

    What it holds is checked before it is used, so this is the net below those checks. The message
    names the line but quotes nothing: a fault of dbern's that ends here can be found and mended.
    """
    try:
        yield
    except _RAISED_BY_CONTENT as error:
        frames = traceback.extract_tb(error.__traceback__)
        root = str(Path(__file__).parent)
        frame = [frame for frame in frames if frame.filename.startswith(root)][-1]
        line = f"{Path(frame.filename).name}, line {frame.lineno}"
        raise IntegrityError(
            f"{where}: fails to be read as it is asked here ({type(error).__name__} in {line}). "
            f"{mend}, please report this as a fault of dbern"
        ) from None
