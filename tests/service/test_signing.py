"""Tests of signed bundles: taken from who is trusted, and from nobody else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from service import signing
from service.bundle import unpack
from service.cli import main
from service.errors import SigningUnavailable, UntrustedBundle
from tests.service.api.conftest import Start, start
from tests.service.api.test_bundles import TYPE, files_of, packed_raw
from tests.service.api.test_comparing import submit

__all__ = ["start"]  # a fixture


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """A private key."""
    path = tmp_path / "release.pem"
    signing.create_key(path)
    return path


def public(key: Path) -> str:
    """The public key that a signature tells."""
    return str(json.loads(signing.sign(b"", key))["key"])


def test_a_signature_is_of_one_key_and_one_text(key: Path, tmp_path: Path) -> None:
    """Equal texts have equal signatures; another key, text or none is refused."""
    statement = signing.sign(b"text", key)
    assert statement == signing.sign(b"text", key)
    signing.check(statement, b"text", {public(key)})
    other = signing.create_key(tmp_path / "other.pem")
    forged = json.dumps({**json.loads(statement), "key": other}).encode()
    for told, data, trusted in (
        (statement, b"Text", {public(key)}),
        (statement, b"text", {other}),
        (None, b"text", {public(key)}),
        (forged, b"text", {other}),
        (b"[]", b"text", {other}),
        (b"\xff", b"text", {other}),
        (statement.replace(b"signature/1", b"signature/9"), b"text", {public(key)}),
    ):
        with pytest.raises(UntrustedBundle):
            signing.check(told, data, trusted)
    signing.check(None, b"text", frozenset())


def test_a_key_is_its_owners_and_never_replaced(key: Path) -> None:
    """Nobody else may read the file, and a second one does not overwrite it."""
    assert key.stat().st_mode & 0o077 == 0
    before = key.read_bytes()
    with pytest.raises(SigningUnavailable, match="cannot be made"):
        signing.create_key(key)
    assert key.read_bytes() == before
    key.write_text("no key")
    with pytest.raises(SigningUnavailable, match="cannot be read"):
        signing.sign(b"", key)
    with pytest.raises(SigningUnavailable, match="no public key"):
        signing.trusted_keys("abc")


def test_only_signed_bundles_are_taken(start: Start, key: Path) -> None:
    """A service that trusts a key takes its bundles; the rest changes nothing."""
    source: TestClient = start(bundle_key=key)
    wanted = submit(source)["plan_key"]
    signed = source.get("/v1/bundles").content
    assert signed == source.get("/v1/bundles").content
    plain = start().get("/v1/bundles").content
    assert [plan.key for plan in unpack(signed, max_bytes=2**26).plans] == [wanted]
    strict = start(bundle_trust=public(key))
    refused = strict.post("/v1/bundles", content=plain, headers=TYPE)
    assert (refused.status_code, refused.json()["code"]) == (422, "untrusted-bundle")
    taken = strict.post("/v1/bundles", content=signed, headers=TYPE)
    assert taken.status_code == 202, taken.text


def test_a_changed_bundle_loses_its_signature(start: Start, key: Path) -> None:
    """Sums that fit the changed files are not those that were signed."""
    import hashlib  # noqa: PLC0415 - only here
    import tarfile  # noqa: PLC0415 - only here

    source: TestClient = start(bundle_key=key)
    submit(source)
    files = files_of(source.get("/v1/bundles").content)
    files["manifest.json"] = files["manifest.json"].replace(
        b'"kernels":1', b'"kernels":2'
    )
    rest = {n: d for n, d in files.items() if not n.startswith("SHA256SUMS")}
    lines = [f"{hashlib.sha256(rest[n]).hexdigest()}  {n}\n" for n in sorted(rest)]
    files["SHA256SUMS"] = "".join(lines).encode()
    changed = packed_raw([(tarfile.TarInfo(n), files[n]) for n in sorted(files)])
    with pytest.raises(UntrustedBundle, match="not of these bytes"):
        unpack(changed, max_bytes=2**26, trusted={public(key)})


def test_the_command_makes_a_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It prints the public key, and how to use both."""
    path = tmp_path / "key.pem"
    assert main(["bundle", "key", str(path)]) == 0
    told = capsys.readouterr()
    assert told.out.strip() == public(path)
    assert "FUSEPLAN_BUNDLE_TRUST" in told.err
    assert main(["bundle", "key", str(path)]) == 2
