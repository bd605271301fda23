"""Whose a synopsis is: signatures of its manifest, and what they are worth."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from projects import records, released_in

import dbern
from dbern.errors import EnvironmentRefusedError, IntegrityError, SpecError
from dbern.synopsis.signatures import fingerprint, private_key_of

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


@pytest.fixture(scope="module")
def store(tmp_path_factory, client):
    return released_in(tmp_path_factory.mktemp("signed"), client, records()).url


@pytest.fixture
def released(store, tmp_path):
    return shutil.copytree(store, tmp_path / "out.zarr")


def print_of(path):
    from dbern.synopsis.signatures import public_key_of

    return fingerprint(public_key_of(path))


def test_a_signature_goes_round(released, run, key):
    private, public = key("ours")
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


def test_5_unless_a_trusted_key_signed(released, run, key):
    ours, theirs, third = key("ours"), key("theirs"), key("third")
    ran = run("verify", "out.zarr", "--trusted", ours[1])
    assert ran.code == 5
    assert "is unsigned, so by none of the trusted keys" in ran.err
    assert run("sign", "out.zarr", "--key", theirs[0]).code == 0
    ran = run("verify", "out.zarr", "--trusted", ours[1])
    assert ran.code == 5
    assert print_of(theirs[1]) in ran.err
    assert run("verify", "out.zarr", "--trusted", ours[1], "--trusted", theirs[1]).code == 0
    assert run("sign", "out.zarr", "--key", ours[0]).code == 0
    both = run("verify", "out.zarr", "--trusted", ours[1], "--json").json["signers"]
    assert {one["fingerprint"]: one["trusted"] for one in both} == {
        print_of(ours[1]): True,
        print_of(theirs[1]): False,
    }
    assert run("verify", "out.zarr", "--trusted", third[1]).code == 5
    with pytest.raises(IntegrityError, match="none of the trusted keys"):
        dbern.open(released).verify(trusted=[third[1]])


def test_a_changed_manifest_is_not_the_signed_one(released, run, key):
    """As whoever can write the store would do it: the digests are right, and nothing else."""
    private, public = key("ours")
    run("sign", "out.zarr", "--key", private)
    text = (released / "manifest.json").read_text()
    (released / "manifest.json").write_text(text + " ")
    for command in (("verify", "out.zarr", "--trusted", public), ("verify", "out.zarr"),
                    ("show", "out.zarr"), ("sign", "out.zarr", "--key", private)):  # fmt: skip
        ran = run(*command)
        assert ran.code == 5, command
        assert "is not of this manifest" in ran.err
    assert len(dbern.open(released)(np.zeros((1, 2)))) == 1  # who does not ask is not told


def test_a_signature_of_another_release_is_refused(released, run, key):
    private, public = key("ours")
    other = shutil.copytree(released, released.with_name("other.zarr"))
    manifest = other / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text())))  # of other bytes
    assert run("sign", "other.zarr", "--key", private).code == 0
    shutil.copytree(other / "signatures", released / "signatures")
    ran = run("verify", "out.zarr", "--trusted", public)
    assert ran.code == 5
    assert "the signature is another release's" in ran.err


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
def test_a_changed_signature_is_named(released, run, key, change, said):
    private, public = key("ours")
    run("sign", "out.zarr", "--key", private)
    name = f"signatures/{print_of(public)}.json"
    assert run("verify", "out.zarr").code == 0
    (released / name).write_bytes(change((released / name).read_text()).encode())
    ran = run("verify", "out.zarr")
    assert ran.code == 5
    assert f"{name} is damaged" in ran.err
    assert said in ran.err


def test_a_key_under_another_name_is_refused(released, run, key):
    """Or one signature would count as that of another key."""
    ours, theirs = key("ours"), key("theirs")
    run("sign", "out.zarr", "--key", ours[0])
    folder = released / "signatures"
    (folder / f"{print_of(ours[1])}.json").rename(folder / f"{print_of(theirs[1])}.json")
    ran = run("verify", "out.zarr", "--trusted", theirs[1])
    assert ran.code == 5
    assert "is not the key that its name says" in ran.err


def test_a_damaged_synopsis_is_not_signed(released, run, key):
    shard = released / "components/density/coefficients/c/0/0"
    shard.write_bytes(shard.read_bytes()[:-1])
    assert run("sign", "out.zarr", "--key", key("ours")[0]).code == 5
    assert not (released / "signatures").exists()


def test_a_signature_is_never_put_behind_a_link(released, run, key, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (released / "signatures").symlink_to(tmp_path / "elsewhere")
    assert run("sign", "out.zarr", "--key", key("ours")[0]).code == 5
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_public_key_signs_nothing(released, run, key):
    ran = run("sign", "out.zarr", "--key", key("ours")[1])
    assert ran.code == 2
    assert "is a public key" in ran.err
    assert "Write the path of the private key" in ran.err


def test_an_encrypted_key_needs_its_passphrase(released, run, key, monkeypatch):
    private, public = key("ours", PASSPHRASE)
    ran = run("sign", "out.zarr", "--key", private)
    assert ran.code == 4
    assert "Set DBERN_SIGNING_PASSPHRASE" in ran.err
    monkeypatch.setenv("DBERN_SIGNING_PASSPHRASE", "wrong")
    ran = run("sign", "out.zarr", "--key", private)
    assert ran.code == 2
    assert "does not open with this passphrase" in ran.err
    monkeypatch.setenv("DBERN_SIGNING_PASSPHRASE", PASSPHRASE)
    ran = run("sign", "out.zarr", "--key", private)
    assert ran.code == 0
    assert PASSPHRASE not in ran.out + ran.err
    assert run("verify", "out.zarr", "--trusted", public).code == 0


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o666])
def test_a_key_that_everybody_may_read_is_refused(key, mode):
    private, _ = key("ours")
    private.chmod(mode)
    with pytest.raises(EnvironmentRefusedError, match="Run chmod 600"):
        private_key_of(private, lambda: "")


@pytest.mark.parametrize("content", [None, b"", b"-----BEGIN PRIVATE KEY-----", "ec", "public"])
def test_files_that_are_not_ed25519_keys_are_refused(key, tmp_path, content):
    private, public = key("ours")
    if content == "ec":
        private, _ = key("ec", private=generate_private_key(SECP256R1()))
    elif content is None:
        private.unlink()
    else:
        private.write_bytes(public.read_bytes() if content == "public" else content)
    with pytest.raises(SpecError, match="--key: "):
        private_key_of(private, lambda: "")


def test_a_private_key_is_no_trusted_one(released, run, key):
    ran = run("verify", "out.zarr", "--trusted", key("ours")[0])
    assert ran.code == 2
    assert "is not an Ed25519 public key" in ran.err
    assert run("verify", "out.zarr", "--trusted", "nothing.pub").code == 2


def test_readers_of_zarr_do_not_mind(released, run, key):
    import xarray

    run("sign", "out.zarr", "--key", key("ours")[0])
    group = {"group": "components/density", "consolidated": False}
    with xarray.open_zarr(released, **group) as opened:
        assert opened["coefficients"].notnull().all()


@pytest.mark.slow
def test_a_report_names_the_signer(released, run, key):
    pytest.importorskip("jinja2")
    pytest.importorskip("matplotlib")
    private, public = key("ours")
    assert run("report", "out.zarr", "--out", "a.html").code == 0
    assert "unsigned: nothing says whose it is" in Path(released.parent / "a.html").read_text()
    run("sign", "out.zarr", "--key", private)
    assert run("report", "out.zarr", "--out", "b.html").code == 0
    said = f"signed by {print_of(public)}, not checked against a trusted key"
    assert said in Path(released.parent / "b.html").read_text()


@pytest.mark.slow
def test_a_bucket_is_signed_too(project, bucket, client, run, key):
    for path in project.files():
        bucket.put(f"data/{path.name}", path.read_bytes())
    url = bucket.url("out.zarr")
    spec = project.spec(data={"source": bucket.url("data/*.parquet")}, release={"output": url})
    dbern.release(spec, client=client)
    ours, theirs = key("ours"), key("theirs")
    for _ in range(2):
        assert run("sign", url, "--key", ours[0]).code == 0
    name = f"signatures/{print_of(ours[1])}.json"
    assert name in bucket.objects("out.zarr")
    assert run("verify", url, "--trusted", ours[1]).code == 0
    assert run("verify", url, "--trusted", theirs[1]).code == 5
    bucket.put(f"out.zarr/{name}", b"x" * 5000)
    ran = run("verify", url)
    assert ran.code == 5
    assert "more than 4096 bytes" in ran.err


@pytest.mark.slow
def test_openssl_makes_such_keys_and_checks_such_signatures(released, run, tmp_path):
    """What FORMAT.md says of fingerprints and signed bytes, by another program."""
    import base64
    import hashlib
    import subprocess

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
