"""Whose a synopsis is: signatures of its manifest, and what they are worth."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import xarray
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from shared import shared

import dbern
from dbern.errors import EnvironmentRefusedError, IntegrityError, SpecError
from dbern.synopsis.signatures import fingerprint, private_key_of, public_key_of

PASSPHRASE = "correct horse"


@pytest.fixture
def key(tmp_path):
    """Makes a key and its public half, as openssl does: paths of both."""

    def made(name, secret=None, private=None):
        private = private or Ed25519PrivateKey.from_private_bytes(name.encode().ljust(32, b"."))
        lock = BestAvailableEncryption(secret.encode()) if secret else NoEncryption()
        pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, lock)
        public = private.public_key()
        paths = tmp_path / f"{name}.pem", tmp_path / f"{name}.pub"
        paths[0].write_bytes(pem)
        paths[0].chmod(0o600)
        info = PublicFormat.SubjectPublicKeyInfo
        paths[1].write_bytes(public.public_bytes(Encoding.PEM, info))
        return paths

    return made


@pytest.fixture
def ours(key):
    return key("ours")


@pytest.fixture(scope="module")
def one(tmp_path_factory, client):
    return shared("one", tmp_path_factory, client)


@pytest.fixture
def released(one, tmp_path):
    return shutil.copytree(one.url, tmp_path / "out.zarr")


@pytest.fixture
def signed(released, run, ours):
    """The store with a signature, and the signature's file."""
    assert run("sign", "out.zarr", "--key", ours[0]).code == 0
    return released / f"signatures/{print_of(ours[1])}.json"


def print_of(path):
    return fingerprint(public_key_of(path))


def test_a_signature_goes_round(released, run, ours):
    private, public = ours
    assert "unsigned" in run("verify", "out.zarr").out
    assert run("verify", "out.zarr", "--json").json["signers"] == []
    assert "unsigned" in run("show", "out.zarr").out
    signed = run("sign", "out.zarr", "--key", private, "--json")
    assert (signed.code, signed.json) == (0, {"signer": print_of(public)})
    content = {path: path.read_bytes() for path in released.rglob("*") if path.is_file()}
    assert run("sign", "out.zarr", "--key", private).code == 0  # once more is as once
    assert content == {path: path.read_bytes() for path in released.rglob("*") if path.is_file()}
    plain = run("verify", "out.zarr", "--json")
    assert plain.json["signers"] == [{"fingerprint": print_of(public), "trusted": None}]
    trusted = run("verify", "out.zarr", "--trusted", public)
    assert trusted.code == 0
    assert f"signed by {print_of(public)}, a trusted key" in trusted.out
    said = f"signed by {print_of(public)}, not checked against a trusted key"
    assert said in run("verify", "out.zarr").out
    assert said in run("show", "out.zarr").out
    assert run("show", "out.zarr", "--json").json["signers"] == [print_of(public)]
    opened = dbern.open(released)
    assert opened.signers == (print_of(public),)
    assert opened.verify(trusted=[public]) == 9
    assert np.isfinite(opened(np.array([[5.0, 0.0]]))).all()


def test_5_unless_a_trusted_key_signed(released, run, key, ours):
    theirs, third = key("theirs"), key("third")
    trusted = ("verify", "out.zarr", "--trusted", ours[1])
    run(*trusted).refused(5, "is unsigned, so by none of the trusted keys")
    assert run("sign", "out.zarr", "--key", theirs[0]).code == 0
    run(*trusted).refused(5, print_of(theirs[1]))
    assert run(*trusted, "--trusted", theirs[1]).code == 0
    assert run("sign", "out.zarr", "--key", ours[0]).code == 0
    both = run(*trusted, "--json").json["signers"]
    expected = {print_of(ours[1]): True, print_of(theirs[1]): False}
    assert {one["fingerprint"]: one["trusted"] for one in both} == expected
    run("verify", "out.zarr", "--trusted", third[1]).refused(5)
    with pytest.raises(IntegrityError, match="none of the trusted keys"):
        dbern.open(released).verify(trusted=[third[1]])


def test_a_changed_manifest_is_not_the_signed_one(signed, released, run, ours):
    """As whoever can write the store would do it: the digests are right, and nothing else."""
    private, public = ours
    text = (released / "manifest.json").read_text()
    (released / "manifest.json").write_text(text + " ")
    for command in (("verify", "out.zarr", "--trusted", public), ("verify", "out.zarr"),
                    ("show", "out.zarr"), ("sign", "out.zarr", "--key", private)):  # fmt: skip
        run(*command).refused(5, "is not of this manifest")
    assert len(dbern.open(released)(np.zeros((1, 2)))) == 1  # who does not ask is not told


def test_a_signature_of_another_release_is_refused(released, run, ours):
    private, public = ours
    other = shutil.copytree(released, released.with_name("other.zarr"))
    manifest = other / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text())))  # of other bytes
    assert run("sign", "other.zarr", "--key", private).code == 0
    shutil.copytree(other / "signatures", released / "signatures")
    run("verify", "out.zarr", "--trusted", public).refused(5, "the signature is another release's")


def with_fields(**fields):
    return lambda text: json.dumps(json.loads(text) | fields, indent=1) + "\n"


ELSE = "is not written as a signature is"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (with_fields(signature="AAAA"), "is not of this manifest"),
        (with_fields(signature="\x1b[2J"), "signature: String should match"),
        (with_fields(public_key="AAAA"), "holds no key"),
        (with_fields(algorithm="none"), "algorithm: Input should be 'ed25519'"),
        (with_fields(format_version=2), "format_version"),
        (with_fields(public_key=None), "public_key"),
        (lambda text: text + "\n", ELSE),
        (lambda text: " " + text, ELSE),
        (lambda text: text.replace(": ", ":  ", 1), ELSE),
        (lambda text: text.replace("{", '{"algorithm": "none",', 1), ELSE),
        (lambda text: text.replace("{", '{"signed_by": "somebody",', 1), ELSE),
        (lambda text: text.replace('"ed25519"', '"ed2551\\u0039"'), ELSE),
        (lambda text: text.replace("\n", "\r\n"), ELSE),
    ],
)
def test_a_changed_signature_is_named(signed, run, change, said):
    assert run("verify", "out.zarr").code == 0
    signed.write_bytes(change(signed.read_text()).encode())
    run("verify", "out.zarr").refused(5, f"signatures/{signed.name} is damaged", said)


def test_a_key_under_another_name_is_refused(signed, run, key):
    """Or one signature would count as that of another key."""
    _, theirs = key("theirs")
    signed.rename(signed.with_name(f"{print_of(theirs)}.json"))
    said = "is not the key that its name says"
    run("verify", "out.zarr", "--trusted", theirs).refused(5, said)


def test_a_damaged_synopsis_is_not_signed(released, run, ours):
    shard = released / "components/density/coefficients/c/0/0"
    shard.write_bytes(shard.read_bytes()[:-1])
    run("sign", "out.zarr", "--key", ours[0]).refused(5)
    assert not (released / "signatures").exists()


def test_a_signature_is_never_put_behind_a_link(released, run, ours, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (released / "signatures").symlink_to(tmp_path / "elsewhere")
    run("sign", "out.zarr", "--key", ours[0]).refused(5)
    assert not list((tmp_path / "elsewhere").iterdir())


def test_neither_half_of_a_key_stands_for_the_other(released, run, ours):
    private, public = ours
    said = "is a public key", "Write the path of the private key"
    run("sign", "out.zarr", "--key", public).refused(2, *said)
    run("verify", "out.zarr", "--trusted", private).refused(2, "is not an Ed25519 public key")
    run("verify", "out.zarr", "--trusted", "nothing.pub").refused(2)


def test_an_encrypted_key_needs_its_passphrase(released, run, key, monkeypatch):
    private, public = key("ours", PASSPHRASE)
    sign = ("sign", "out.zarr", "--key", private)
    run(*sign).refused(4, "Set DBERN_SIGNING_PASSPHRASE")
    monkeypatch.setenv("DBERN_SIGNING_PASSPHRASE", "wrong")
    run(*sign).refused(2, "does not open with this passphrase")
    monkeypatch.setenv("DBERN_SIGNING_PASSPHRASE", PASSPHRASE)
    ran = run(*sign)
    assert ran.code == 0
    assert PASSPHRASE not in ran.out + ran.err
    assert run("verify", "out.zarr", "--trusted", public).code == 0


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o666])
def test_a_key_that_everybody_may_read_is_refused(ours, mode):
    ours[0].chmod(mode)
    with pytest.raises(EnvironmentRefusedError, match="Run chmod 600"):
        private_key_of(ours[0], lambda: "")


@pytest.mark.parametrize("content", [None, b"", b"-----BEGIN PRIVATE KEY-----", "ec", "public"])
def test_files_that_are_not_ed25519_keys_are_refused(key, ours, content):
    private, public = ours
    if content == "ec":
        private, _ = key("ec", private=generate_private_key(SECP256R1()))
    elif content is None:
        private.unlink()
    else:
        private.write_bytes(public.read_bytes() if content == "public" else content)
    with pytest.raises(SpecError, match="--key: "):
        private_key_of(private, lambda: "")


def test_readers_of_zarr_do_not_mind(signed, released):
    group = {"group": "components/density", "consolidated": False}
    with xarray.open_zarr(released, **group) as opened:
        assert opened["coefficients"].notnull().all()


@pytest.mark.slow
def test_a_report_names_the_signer(released, run, ours):
    pytest.importorskip("jinja2")
    pytest.importorskip("matplotlib")
    private, public = ours
    assert run("report", "out.zarr", "--out", "a.html").code == 0
    assert "unsigned: nothing says whose it is" in Path(released.parent / "a.html").read_text()
    run("sign", "out.zarr", "--key", private)
    assert run("report", "out.zarr", "--out", "b.html").code == 0
    said = f"signed by {print_of(public)}, not checked against a trusted key"
    assert said in Path(released.parent / "b.html").read_text()


@pytest.mark.slow
def test_a_bucket_is_signed_too(project, bucket, client, run, key, ours):
    for path in project.files():
        bucket.put(f"data/{path.name}", path.read_bytes())
    url = bucket.url("out.zarr")
    spec = project.spec(data={"source": bucket.url("data/*.parquet")}, release={"output": url})
    dbern.release(spec, client=client)
    for _ in range(2):
        assert run("sign", url, "--key", ours[0]).code == 0
    name = f"signatures/{print_of(ours[1])}.json"
    assert name in bucket.objects("out.zarr")
    assert run("verify", url, "--trusted", ours[1]).code == 0
    run("verify", url, "--trusted", key("theirs")[1]).refused(5)
    bucket.put(f"out.zarr/{name}", b"x" * 5000)
    run("verify", url).refused(5, "more than 4096 bytes")


@pytest.mark.slow
def test_openssl_makes_such_keys_and_checks_such_signatures(released, run, tmp_path):
    """What FORMAT.md says of fingerprints and signed bytes, by another program."""
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("openssl is not installed here: apt-get install openssl")

    def openssl(*arguments):
        return subprocess.run(
            [program, *map(str, arguments)], capture_output=True, check=True, timeout=60
        ).stdout

    private, public = tmp_path / "k.pem", tmp_path / "k.pub"
    openssl("genpkey", "-algorithm", "ed25519", "-out", private)
    private.chmod(0o600)
    openssl("pkey", "-in", private, "-pubout", "-out", public)
    ran = run("sign", "out.zarr", "--key", private, "--json")
    der = openssl("pkey", "-in", private, "-pubout", "-outform", "der")
    assert ran.json["signer"] == hashlib.sha256(der).hexdigest()
    content = json.loads((released / f"signatures/{ran.json['signer']}.json").read_text())
    (tmp_path / "signature").write_bytes(base64.b64decode(content["signature"]))
    signed = b"dbern synopsis manifest, signature format 1\n"
    signed += (released / "manifest.json").read_bytes()
    (tmp_path / "signed").write_bytes(signed)
    check = ("pkeyutl", "-verify", "-pubin", "-inkey", public, "-rawin", "-in", tmp_path / "signed")
    assert b"Verified Successfully" in openssl(*check, "-sigfile", tmp_path / "signature")
