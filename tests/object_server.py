"""S3 on loopback: moto behind a recorder that counts requests and plants failures."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

KEY, SECRET = "AKIAEXAMPLEKEYNAME", "s3cr3t-that-must-not-be-anywhere"


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: dict[str, str] = field(repr=False)

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


@dataclass
class ObjectServer:
    """Its requests since `requests` was cleared, and the faults to come.

    `fault` is asked for every request: None lets it pass, "refuse" answers 503, "lose" does it and
    answers 503, "heedless" does it without its ``If-None-Match``, a number stalls it by seconds.
    """

    application: Any
    port: int = 0
    scheme: str = "http"
    requests: list[Request] = field(default_factory=list)
    fault: Callable[[Request], Any] = lambda _request: None

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"{self.scheme}://127.0.0.1:{self.port}",
        }

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        headers = {name: value for name, value in environ.items() if name.startswith("HTTP_")}
        request = Request(environ["REQUEST_METHOD"], environ["PATH_INFO"], headers)
        self.requests.append(request)
        what = self.fault(request)
        if isinstance(what, int | float):
            time.sleep(what)
        if what == "heedless":
            environ.pop("HTTP_IF_NONE_MATCH", None)
        if what == "lose":
            list(self.application(environ, lambda *_: None))
        if what in ("refuse", "lose"):
            start("503 Service Unavailable", [("Content-Length", "0")])
            return []
        return self.application(environ, start)

    def reads(self, part: str = "") -> list[str]:
        return [one.path for one in self.requests if one.method == "GET" and part in one.path]


def start(certificate: Path | None = None) -> tuple[ObjectServer, Any]:
    """The server, and what stops it; ImportError where moto is not installed.

    With the folder of a certificate it speaks TLS.
    """
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):
        def log(self, *_arguments: object) -> None:
            pass

    recorder = ObjectServer(
        DomainDispatcherApplication(create_backend_app), scheme="https" if certificate else "http"
    )
    pair = (certificate / "cert.pem", certificate / "key.pem") if certificate else None
    server = make_server(
        "127.0.0.1", 0, recorder, threaded=True, request_handler=Quiet, ssl_context=pair
    )
    recorder.port = server.server_port
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return recorder, server.shutdown


class Bucket:
    """A new bucket, looked at with an independent client: boto3."""

    _names = itertools.count()

    def __init__(self, server: ObjectServer) -> None:
        import boto3

        self.server = server
        self.name = f"bucket-{next(self._names)}"
        self.client = boto3.client(
            "s3",
            endpoint_url=server.environment["AWS_ENDPOINT_URL"],
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
            region_name="us-east-1",
        )
        self.client.create_bucket(Bucket=self.name)

    def url(self, key: str) -> str:
        return f"s3://{self.name}/{key}"

    def put(self, key: str, data: bytes) -> None:
        self.client.put_object(Bucket=self.name, Key=key, Body=data)

    def objects(self, prefix: str) -> dict[str, bytes]:
        """Objects below a prefix by their names relative to it."""
        found = self.client.list_objects_v2(Bucket=self.name, Prefix=f"{prefix}/")
        assert not found["IsTruncated"]
        return {
            one["Key"][len(prefix) + 1 :]: self.client.get_object(Bucket=self.name, Key=one["Key"])[
                "Body"
            ].read()
            for one in found.get("Contents", ())
        }
