"""Objects in S3: the one owner of obstore.

Its client takes credentials from the environment, from a file that it names, or from the identity
of the machine, never from a URL. No client travels: what a graph, a spec or a ledger holds is a
URL. Failures are `OSError` without the server's text.

Settings are those of Amazon's own tools, so that one environment serves all. Credentials stay out
of `ObjectStoreSettings`, which is compared and cached; nothing here is ever in a spec, a graph or a
log.
"""

from __future__ import annotations

import errno
import math
import os
import re
import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from configparser import ConfigParser, Error
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from io import RawIOBase
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from dbern.data.source_names import (
    TABLE_FORMATS,
    is_hidden,
    is_parquet,
    matches_glob,
    refuse_others,
    refuse_table,
    table_root,
)
from dbern.errors import EnvironmentRefusedError, SpecError, optional_import
from dbern.system import read_small

_AUTHORITY, _CREDENTIALS = "AWS_CA_BUNDLE", "AWS_SHARED_CREDENTIALS_FILE"
_REGION = "us-east-1"
_URL = re.compile(r"s3://[a-z0-9][a-z0-9.-]*/.+")
_MAGIC = re.compile(r"[*\[]")
_TIMEOUT_SECONDS = 30
_RETRIES, _RETRY_SECONDS = 5, 60
_ATTEMPTS, _WAIT_SECONDS = 4, 0.1
_STREAMED_BYTES = 1 << 20
_PART_BYTES, _PARTS = 32 << 20, 2  # in flight; 10000 parts are the most that an object may have


class ObjectStoreSettings(NamedTuple):
    """Store, and the settings of its protocol."""

    server: str  # its address; empty for Amazon's
    region: str
    authority: str  # a file of certificates to trust; empty for the system's
    credentials: str  # a file; empty where the environment or the identity of the machine has them
    profile: str  # which of them
    changed: tuple[int, int]  # when the two files were: whoever keeps a client makes another then


def current_settings() -> ObjectStoreSettings:
    """Settings from the variables of this process, as they are now."""
    variable = os.environ.get
    authority = variable(_AUTHORITY) or ""
    credentials = "" if variable("AWS_ACCESS_KEY_ID") else variable(_CREDENTIALS) or ""
    return ObjectStoreSettings(
        server=variable("AWS_ENDPOINT_URL_S3") or variable("AWS_ENDPOINT_URL") or "",
        region=variable("AWS_REGION") or variable("AWS_DEFAULT_REGION") or _REGION,
        authority=authority,
        credentials=credentials,
        profile=variable("AWS_PROFILE") or "default",
        changed=(_changed(authority), _changed(credentials)),
    )


def trusted(settings: ObjectStoreSettings) -> bytes | None:
    """Return certificates to trust besides the system's, as PEM; None where none are named.

    Raises EnvironmentRefusedError for a file that cannot be read.
    """
    return _content(settings.authority, _AUTHORITY).encode() if settings.authority else None


def read_credentials(settings: ObjectStoreSettings) -> dict[str, str]:
    """Content of the file of credentials, by obstore's names; no message quotes the file."""
    if not settings.credentials:
        return {}
    parser = ConfigParser(interpolation=None)
    try:
        parser.read_string(_content(settings.credentials, _CREDENTIALS))
        profile = parser[settings.profile]
        keys = {name: profile[f"aws_{name}"] for name in ("access_key_id", "secret_access_key")}
    except (Error, KeyError):
        raise EnvironmentRefusedError(
            f"{_CREDENTIALS}: {settings.credentials} has no profile {settings.profile} with "
            "aws_access_key_id and aws_secret_access_key. Write both below its name in brackets, "
            "or name another in AWS_PROFILE."
        ) from None
    token = profile.get("aws_session_token")
    return {**keys, "session_token": token} if token else keys


def _changed(file: str) -> int:
    try:
        return Path(file).stat().st_mtime_ns if file else 0
    except (OSError, ValueError):  # said when it is read
        return 0


def _content(file: str, variable: str) -> str:
    try:
        return read_small(file).decode()
    except (OSError, ValueError) as error:
        shown = "no path" if {"\n", "="} & set(file) else file  # but the content itself
        raise EnvironmentRefusedError(
            f"{variable} names {shown}, which cannot be read ({type(error).__name__}). Write the "
            f"path of a file that is mounted, or unset {variable}."
        ) from None


def check_url(url: str, what: str) -> str:
    """Return the URL if it is one of S3 without a secret; the error names `what`, never the URL."""
    if not url.startswith("s3://"):
        raise SpecError(
            f"{what}: only paths and s3:// URLs are available in this version. Write one such as "
            "s3://bucket/name."
        )
    if set("?#") & set(url) or "@" in url.split("/")[2]:
        raise SpecError(
            f"{what}: a URL has no user, query or fragment here, for credentials come from the "
            "environment alone. Write one such as s3://bucket/name."
        )
    plain = url.rstrip("/")
    if not _URL.fullmatch(plain) or "//" in plain[len("s3://") :]:
        raise SpecError(f"{what}: is no URL of a bucket and a name. Write s3://bucket/name.")
    return plain


class Objects:
    """The objects below a URL, by their names relative to it.

    Any method raises an OSError where the store refuses or does not answer; `FileNotFoundError`
    where the object, or the bucket, is not there.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._bucket, self._prefix = _parts(url)
        self._client = _client(self._bucket, current_settings())

    def __reduce__(self) -> tuple[type[Objects], tuple[str]]:
        """Refuse to pickle: a client may hold credentials."""
        return Objects, (self.url,)

    def read(self, name: str, max_bytes: float = math.inf) -> bytes:
        """Return one whole object, in one request.

        Raises OSError with EFBIG for more than `max_bytes` bytes, before anything is fetched.
        """
        with _without_text():
            return bytes(self._get(name, max_bytes).bytes())

    def parts(self, name: str, max_bytes: float) -> Iterator[bytes]:
        """Yield one object in parts, for what never fits into memory."""
        with _without_text():
            for part in self._get(name, max_bytes).stream(min_chunk_size=_STREAMED_BYTES):
                yield bytes(part)

    def _get(self, name: str, max_bytes: float) -> Any:
        import obstore

        response = obstore.get(self._client, self._key(name))
        if response.meta["size"] > max_bytes:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        return response

    def write(self, name: str, data: bytes) -> None:
        """Put one whole object, in place of any that is there."""
        import obstore

        with _without_text():
            obstore.put(self._client, self._key(name), data, use_multipart=False)

    def create(self, name: str, data: bytes) -> None:
        """Put an object that is not there, by ``If-None-Match: *``.

        Where an answer is lost, the object may be there all the same: then its bytes say whether
        it is this one. That is success, as for files.

        Raises FileExistsError for other bytes there.
        """
        import obstore
        from obstore.exceptions import AlreadyExistsError

        for attempt in range(_ATTEMPTS):
            lost: OSError | None = None
            try:
                with _without_text():
                    obstore.put(
                        self._client, self._key(name), data, mode="create", use_multipart=False
                    )
            except AlreadyExistsError:
                pass
            except (PermissionError, FileNotFoundError):
                raise
            except OSError as error:
                lost = error
            else:
                return
            try:
                stored = self.read(name, max_bytes=len(data))
            except FileNotFoundError:  # it never arrived, or was taken away since
                time.sleep(_WAIT_SECONDS * 2**attempt)
                continue
            except OSError as error:
                if error.errno != errno.EFBIG:
                    raise
                stored = b""  # a larger object is not this one
            if stored != data:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
            return
        raise lost or OSError(errno.EIO, "no answer")

    def sizes(self) -> dict[str, int]:
        """Return names and bytes of all objects, sorted."""
        return _sizes_below(self._client, self._prefix)

    def remove(self, names: Sequence[str]) -> None:
        """Remove objects; those that are not there already are no failure."""
        import obstore

        if names:
            with _without_text():
                obstore.delete(self._client, [self._key(name) for name in names])

    def excludes(self) -> bool:
        """Return whether the store creates a name only once, by trying with its own object."""
        name = f".dbern-probe-{secrets.token_hex(8)}"
        try:
            self.create(name, b"first")
            try:
                self.create(name, b"second")
            except FileExistsError:
                return True
            return False
        finally:
            self.remove([name])

    def _key(self, name: str) -> str:
        return f"{self._prefix}/{name}"


def matching(url: str) -> list[str]:
    """Return the sorted URLs of a source: an object, Parquet files below a prefix, or a glob.

    Raises SpecError for a table that a format governs, and for other files below a prefix.
    """
    bucket, key = _parts(url)
    magic = _MAGIC.search(key)
    if magic is None:
        try:
            identity(url)
        except FileNotFoundError:
            start = key
        else:
            return [url]
    else:
        start = key[: magic.start()].rpartition("/")[0]
    prefix = f"s3://{bucket}/{start}".rstrip("/")
    sizes = _sizes_below(_client(bucket, current_settings()), start)
    others: list[str] = []
    if magic is None:
        shown = [name for name in sizes if not is_hidden(name.split("/"))]
        names = [name for name in shown if is_parquet(name)]
        # An object without bytes is how consoles and Hadoop write a folder.
        others = [name for name in shown if sizes[name] and not is_parquet(name)]
    else:
        pattern = key[len(start) :].lstrip("/").split("/")
        names = [name for name in sizes if matches_glob(name.split("/"), pattern)]
    if names:
        _refuse_tables(bucket, start, sizes, names)
    refuse_others(url, others)
    return [f"{prefix}/{name}" for name in names]


def _refuse_tables(bucket: str, start: str, listed: Iterable[str], names: Sequence[str]) -> None:
    """Refuse objects within a table, whose root may be above the prefix that was listed."""
    for root, key in sorted(set(filter(None, map(table_root, listed)))):
        if any(name.startswith(root and f"{root}/") for name in names):
            refuse_table("/".join(filter(None, (f"s3://{bucket}", start, root))), key)
    folders = start.split("/") if start else []
    for depth, key in product(range(len(folders)), TABLE_FORMATS):
        above = "/".join(folders[:depth])
        for name in _first_names(bucket, f"{above}/{key}".lstrip("/")):
            if table_root(name.removeprefix(f"{above}/")):
                refuse_table(f"s3://{bucket}/{above}".rstrip("/"), key)


def identity(url: str) -> tuple[int, bytes]:
    """Return the size of an object and its entity tag, which changes with its content.

    The tag may be a hash of the records: it is private.
    """
    import obstore

    bucket, key = _parts(url)
    with _without_text():
        meta = obstore.head(_client(bucket, current_settings()), key)
    return meta["size"], (meta["e_tag"] or "").encode()


class ObjectFile(RawIOBase):
    """An object as a file to read: each read is a request for its range.

    Raises OSError as `Objects` does.
    """

    def __init__(self, url: str) -> None:
        bucket, self._key = _parts(url)
        self._client, self._position = _client(bucket, current_settings()), 0
        self.size, _ = identity(url)

    def readable(self) -> bool:
        """Return true."""
        return True

    def seekable(self) -> bool:
        """Return true."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a place, counted from the beginning, from here or from the end; return it."""
        origins = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.size}
        self._position = origins[whence] + offset
        return self._position

    def tell(self) -> int:
        """Return where the next read begins."""
        return self._position

    def read(self, size: int = -1) -> bytes:
        """Return as many bytes, or those that are left."""
        import obstore

        left = max(0, self.size - self._position)
        length = left if size < 0 else min(size, left)
        if not length:
            return b""
        with _without_text():
            part = obstore.get_range(self._client, self._key, start=self._position, length=length)
        self._position += length
        return bytes(part)


@contextmanager
def creating(url: str) -> Iterator[Any]:
    """Open a new object to write to; it appears, complete, after the block.

    It goes in parts, so that its size is bounded by no memory. Where the block fails nothing
    appears; parts that had arrived are the store's to clear away. The store is asked beforehand
    whether the object is there: of two that write it at once the later one's stays.

    Raises FileExistsError for an object that is there, OSError for a store that refuses or does not
    answer.
    """
    import obstore

    try:
        identity(url)
    except FileNotFoundError:
        pass
    else:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
    bucket, key = _parts(url)
    with _without_text():
        file = obstore.open_writer(
            _client(bucket, current_settings()),
            key,
            buffer_size=_PART_BYTES,
            max_concurrency=_PARTS,
        )
        yield file
        file.close()  # here alone: what is closed appears


def _parts(url: str) -> tuple[str, str]:
    bucket, _, key = check_url(url, "URL").removeprefix("s3://").partition("/")
    return bucket, key


@lru_cache(maxsize=32)
def _client(bucket: str, settings: ObjectStoreSettings) -> Any:
    with optional_import(
        "s3:// needs obstore, here and on the workers. Run: pip install 'dbern[s3]'"
    ):
        from obstore.store import S3Store
    options: dict[str, Any] = {"endpoint": settings.server} if settings.server else {}
    certificates = trusted(settings)
    return S3Store(
        bucket,
        **options,
        **read_credentials(settings),
        region=settings.region,
        client_options={
            "allow_http": settings.server.startswith("http://"),
            "timeout": timedelta(seconds=_TIMEOUT_SECONDS),
            **({"root_certificate": certificates} if certificates else {}),
        },
        retry_config={"max_retries": _RETRIES, "retry_timeout": timedelta(seconds=_RETRY_SECONDS)},
    )


@contextmanager
def _without_text() -> Iterator[None]:
    from obstore import exceptions

    try:
        yield
    except exceptions.AlreadyExistsError:
        raise
    except (exceptions.BaseError, FileNotFoundError) as error:
        code = _failure_code(error)
        name = type(error).__name__
        text = f"object store: {name}" if code == errno.EIO else os.strerror(code)
        raise OSError(code, text) from None


def _failure_code(error: Exception) -> int:
    """Return the number of a store's failure; of a listing the answer's status tells it alone."""
    from obstore import exceptions

    status = re.search(r"status code: (\d{3})", str(error))
    if isinstance(error, FileNotFoundError) or (status and status[1] == "404"):
        return errno.ENOENT
    denied = (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError)
    if isinstance(error, denied) or (status and status[1] in ("401", "403")):
        return errno.EACCES
    return errno.EIO


def _sizes_below(client: Any, prefix: str) -> dict[str, int]:
    """Return bytes by sorted name, relative to a prefix; an empty one is the whole bucket."""
    import obstore

    with _without_text():
        objects = obstore.list(client, prefix=prefix or None).collect()
    start = len(prefix) + 1 if prefix else 0
    return dict(sorted((meta["path"][start:], meta["size"]) for meta in objects))


def _first_names(bucket: str, prefix: str) -> list[str]:
    """Return the first names below a prefix, of a request; none where it may not be listed."""
    import obstore

    try:
        with _without_text():
            page = next(obstore.list(_client(bucket, current_settings()), prefix=prefix), ())
    except PermissionError:
        return []
    return [meta["path"] for meta in page]
