"""A store of one's own: its authority and its credentials come from files that are named."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import object_server
import pytest

from dbern.data.objects import (
    ObjectFile,
    Objects,
    creating,
    current_settings,
    read_credentials,
    trusted,
)
from dbern.data.storage import Bucket
from dbern.errors import EnvironmentRefusedError

VARIABLES = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ACCESS_KEY_ID", "AWS_CA_BUNDLE",
             "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_SHARED_CREDENTIALS_FILE",
             "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION")  # fmt: skip
FILE = "[default]\naws_access_key_id = one\naws_secret_access_key = 100%s\n"


@pytest.fixture
def bare(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_settings_without_variables_are_amazons_and_the_machines_identity(bare):
    assert current_settings() == ("", "us-east-1", "", "", "default", (0, 0))
    assert trusted(current_settings()) is None
    assert read_credentials(current_settings()) == {}


def test_credentials_come_from_the_file_unless_the_environment_holds_them(bare, tmp_path):
    file = tmp_path / "credentials"
    file.write_text(
        f"{FILE}[other]\naws_access_key_id=two\naws_secret_access_key=2\naws_session_token=3\n"
    )
    bare.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    found = {"access_key_id": "one", "secret_access_key": "100%s"}
    assert read_credentials(current_settings()) == found
    bare.setenv("AWS_PROFILE", "other")
    assert read_credentials(current_settings()) == {
        "access_key_id": "two", "secret_access_key": "2", "session_token": "3"
    }  # fmt: skip
    bare.setenv("AWS_ACCESS_KEY_ID", "three")
    assert read_credentials(current_settings()) == {}
    assert "100%s" not in repr(current_settings())


def test_a_file_that_was_rotated_is_read_again_and_what_travels_holds_no_secret(bare, tmp_path):
    pytest.importorskip("obstore", reason="obstore is not installed here: pip install obstore")
    file = tmp_path / "credentials"
    bare.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    for number, secret in enumerate(("first-secret", "second-secret")):
        file.write_text(FILE.replace("100%s", secret))
        os.utime(file, ns=(number, number))
        place = Bucket("s3://bucket/x")
        assert place._objects._client.config["secret_access_key"] == secret
        travelling = pickle.dumps([place, place._objects])
        assert secret.encode() not in travelling
        again, inside = pickle.loads(travelling)
        assert again.url == inside.url == "s3://bucket/x"
        assert inside._client.config["secret_access_key"] == secret


def test_a_variable_that_holds_the_content_is_not_quoted(bare):
    bare.setenv("AWS_SHARED_CREDENTIALS_FILE", FILE)
    with pytest.raises(EnvironmentRefusedError, match="names no path") as error:
        read_credentials(current_settings())
    assert "100%s" not in str(error.value)


@pytest.mark.parametrize(
    "content", [None, "", "secretly", "[default]\naws_access_key_id = one\n", "[else]\na = 1\n"]
)
def test_a_file_that_holds_no_credentials_is_named_and_not_quoted(bare, tmp_path, content):
    file = tmp_path / "credentials"
    if content is not None:
        file.write_text(content)
    bare.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    with pytest.raises(EnvironmentRefusedError, match=str(file)) as error:
        read_credentials(current_settings())
    assert not content or content.strip() not in str(error.value)


def test_an_authority_that_cannot_be_read_is_named(bare, tmp_path):
    bare.setenv("AWS_CA_BUNDLE", str(tmp_path / "none.pem"))
    with pytest.raises(EnvironmentRefusedError, match=r"AWS_CA_BUNDLE names .*none\.pem"):
        trusted(current_settings())


@pytest.mark.slow
def test_clients_of_a_store_speak_tls_by_a_named_authority(bare, tmp_path):
    """And to nobody whose authority is another's."""
    pytest.importorskip("obstore", reason="obstore is not installed here: pip install obstore")
    pytest.importorskip("moto", reason="moto is not installed here: pip install 'moto[s3]'")
    from deploy import certificates

    for folder in ("objects", "others"):
        certificates.make_authority(tmp_path / folder)
    role = certificates.issue(tmp_path / "objects", "store", ["127.0.0.1"])
    server, stop = object_server.start(role)
    try:
        bare.setattr("dbern.data.objects._RETRIES", 0)
        bare.setattr("dbern.data.objects._RETRY_SECONDS", 2)
        file = tmp_path / "credentials"
        file.write_text(FILE)
        bare.setenv("AWS_ENDPOINT_URL", server.environment["AWS_ENDPOINT_URL"])
        bare.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
        bare.setenv("AWS_CA_BUNDLE", str(role / "ca.pem"))
        make_bucket()
        place = Objects("s3://releases/a")
        assert place.excludes()
        with creating("s3://releases/a/b") as written:
            written.write(b"content")
        with ObjectFile("s3://releases/a/b") as found:
            assert found.read() == b"content" == place.read("b")
            assert (found.seek(-4, os.SEEK_END), found.read(3), found.read(9)) == (3, b"ten", b"t")
            assert (found.seek(-5, os.SEEK_CUR), found.tell(), found.read(2)) == (2, 2, b"nt")
            assert (found.seek(9), found.read(1)) == (9, b"")
        assert all("one/" in request.headers["HTTP_AUTHORIZATION"] for request in server.requests)
        bare.setenv("AWS_CA_BUNDLE", str(tmp_path / "others" / "ca.pem"))
        with pytest.raises(OSError, match="object store"):
            Objects("s3://releases/a").read("b")
    finally:
        stop()


def make_bucket():
    """By the command that the compose file runs for it, in a process of its own."""
    import yaml

    compose = Path(__file__).parents[2] / "deploy" / "compose.yaml"
    (python, *words) = yaml.safe_load(compose.read_text())["services"]["bucket"]["command"]
    assert python == "python"
    for _ in range(2):  # a second time it is there, which is no failure
        subprocess.run([sys.executable, *words], check=True)
