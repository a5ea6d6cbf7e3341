"""Tests of bundles: out of one service, into another, and nothing else."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard
from fastapi.testclient import TestClient

from service.app import create_app
from service.bundle import unpack
from tests.service.api.conftest import settings
from tests.service.api.test_comparing import submit

TYPE = {"Content-Type": "application/zstd"}


def tar_of(data: bytes) -> bytes:
    """The tar inside of a bundle."""
    return zstandard.ZstdDecompressor().decompress(data, max_output_size=2**26)


def files_of(data: bytes) -> dict[str, bytes]:
    """The files inside of a bundle."""
    with tarfile.open(fileobj=io.BytesIO(tar_of(data))) as archive:
        members = archive.getmembers()
        return {m.name: archive.extractfile(m).read() for m in members}  # type: ignore[union-attr]


def packed(files: dict[str, bytes]) -> bytes:
    """Files as a bundle, with sums that fit."""
    rest = {name: data for name, data in files.items() if name != "SHA256SUMS"}
    lines = [f"{hashlib.sha256(rest[n]).hexdigest()}  {n}\n" for n in sorted(rest)]
    whole = {**rest, "SHA256SUMS": "".join(lines).encode()}
    return packed_raw([(tarfile.TarInfo(name), whole[name]) for name in sorted(whole)])


def packed_raw(members: list[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    """Any members at all as a bundle."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for member, data in members:
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return zstandard.ZstdCompressor().compress(buffer.getvalue())


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, list[str]]:
    """A bundle of two plans, and their keys."""
    app = create_app(settings(tmp_path_factory.mktemp("source")))
    with TestClient(app) as client:
        keys = [submit(client, width)["plan_key"] for width in (64, 128)]
        return client.get("/v1/bundles").content, keys


def test_plans_move_from_one_service_to_another(
    source: tuple[bytes, list[str]], client: TestClient
) -> None:
    """After the import every plan and all that it names is served; again adds none."""
    data, keys = source
    first = client.post("/v1/bundles", content=data, headers=TYPE)
    again = client.post("/v1/bundles", content=data, headers=TYPE)
    assert first.status_code == 202, first.text
    assert sorted(first.json()["added"]) == sorted(keys)
    assert again.json() == {"keys": first.json()["keys"], "added": []}
    for key in keys:
        plan = client.get(f"/v1/plans/{key}").json()
        for digest in plan["kernels"][0]["sources"].values():
            assert client.get(f"/v1/blobs/sha256/{digest}").status_code == 200
    copied = client.get("/v1/bundles")
    assert tar_of(copied.content) == tar_of(data)
    tag = copied.headers["ETag"]
    held = client.get("/v1/bundles", headers={"If-None-Match": tag})
    assert held.status_code == 304


def test_a_bundle_is_deterministic_and_checkable(
    source: tuple[bytes, list[str]],
) -> None:
    """Names are sorted, times and owners zero, and the sums are right."""
    data, keys = source
    with tarfile.open(fileobj=io.BytesIO(tar_of(data))) as archive:
        members = archive.getmembers()
    names = [member.name for member in members]
    assert names == sorted(names)
    assert {(m.mtime, m.uid, m.gid, m.uname) for m in members} == {(0, 0, 0, "")}
    files = files_of(data)
    for line in files["SHA256SUMS"].decode().splitlines():
        digest, name = line.split("  ")
        assert hashlib.sha256(files[name]).hexdigest() == digest
    manifest = json.loads(files["manifest.json"])
    assert manifest["schema"] == "fuseplan.bundle/1"
    assert {plan["key"] for plan in manifest["plans"]} == set(keys)


def test_a_bundle_can_be_narrowed(client: TestClient) -> None:
    """By key, by target, by evidence; a key without a plan is told."""
    key = submit(client)["plan_key"]
    submit(client, 128)
    one = client.get("/v1/bundles", params={"key": key})
    none = client.get("/v1/bundles", params={"target": "sm_90"})
    measured = client.get("/v1/bundles", params={"evidence": "measured"})
    missing = client.get("/v1/bundles", params={"key": "0" * 64})
    opened = unpack(one.content, max_bytes=2**26)
    assert [plan.key for plan in opened.plans] == [key]
    assert unpack(none.content, max_bytes=2**26).plans == ()
    assert unpack(measured.content, max_bytes=2**26).plans == ()
    assert (missing.status_code, missing.json()["code"]) == (404, "plan-not-found")


def changed(change: Callable[[dict[str, Any]], None]) -> Callable[[bytes], bytes]:
    """A bundle whose manifest was changed."""

    def make(data: bytes) -> bytes:
        files = files_of(data)
        manifest = json.loads(files["manifest.json"])
        change(manifest)
        return packed({**files, "manifest.json": json.dumps(manifest).encode()})

    return make


def with_member(name: str, kind: bytes = tarfile.REGTYPE) -> Callable[[bytes], bytes]:
    """A bundle with one member more."""

    def make(data: bytes) -> bytes:
        member = tarfile.TarInfo(name)
        member.type = kind
        member.linkname = "/etc/passwd"
        return packed_raw([(member, b"")])

    return make


def forged(data: bytes) -> bytes:
    """A bundle in which a body was replaced, with sums and digests that fit."""
    files = files_of(data)
    manifest = json.loads(files["manifest.json"])
    plan = manifest["plans"][0]
    body = files.pop(f"blobs/sha256/{plan['digest']}")
    told = json.loads(body)
    told["target"]["id"] = "other"
    new = json.dumps(told, sort_keys=True, separators=(",", ":")).encode()
    digest = hashlib.sha256(new).hexdigest()
    manifest["media_types"][digest] = manifest["media_types"].pop(plan["digest"])
    plan["digest"] = digest
    files[f"blobs/sha256/{digest}"] = new
    return packed({**files, "manifest.json": json.dumps(manifest).encode()})


def without_blob(data: bytes) -> bytes:
    """A bundle that lacks a kernel source."""
    files = files_of(data)
    plan = json.loads(files["manifest.json"])["plans"][0]
    del files[f"blobs/sha256/{plan['blobs'][0]}"]
    return packed(files)


BAD: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "text": lambda data: b"no bundle at all",
    "cut short": lambda data: data[: len(data) // 2],
    "bits changed": lambda data: data[:100] + b"\x00" * 20 + data[120:],
    "a link": with_member("manifest.json", tarfile.SYMTYPE),
    "a hard link": with_member("SHA256SUMS", tarfile.LNKTYPE),
    "a device": with_member("manifest.json", tarfile.CHRTYPE),
    "a folder": with_member("blobs", tarfile.DIRTYPE),
    "a path upwards": with_member("../manifest.json"),
    "an absolute path": with_member("/etc/cron.d/x"),
    "a hidden path": with_member("blobs/sha256/../../x"),
    "no manifest": lambda data: packed({}),
    "twice": lambda data: packed_raw(
        [(tarfile.TarInfo("manifest.json"), b"{}")] * 2,
    ),
    "sums missing": lambda data: packed_raw([(tarfile.TarInfo("manifest.json"), b"")]),
    "other schema": changed(lambda m: m.update(schema="fuseplan.bundle/9")),
    "other key": changed(lambda m: m["plans"][0].update(key="0" * 64)),
    "other graph": changed(lambda m: m["plans"][0].update(graph_hash="0" * 64)),
    "better evidence": changed(lambda m: m["plans"][0].update(evidence="measured")),
    "a number without end": changed(lambda m: m["plans"][0].update(nodes=10**30)),
    "a number of no column": changed(lambda m: m["plans"][0].update(kernels=2**31)),
    "no text": changed(lambda m: m["plans"][0].update(target="a\0b")),
    "no number": changed(lambda m: m["plans"][0].update(seconds=-1)),
    "a page": changed(
        lambda m: m["media_types"].update(dict.fromkeys(m["media_types"], "text/html"))
    ),
    "deep manifest": lambda data: packed({"manifest.json": b"[" * 100_000}),
    "forged body": forged,
    "missing blob": without_blob,
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_bundle_is_refused(
    source: tuple[bytes, list[str]], shared: TestClient, name: str
) -> None:
    """It is explained, nothing of it is stored, and the service lives on."""
    data = BAD[name](source[0])
    answer = shared.post("/v1/bundles", content=data, headers=TYPE)
    assert (answer.status_code, answer.json()["code"]) == (422, "bad-bundle")
    assert shared.get("/v1/cache-info").json()["plans"] == {}


def test_a_bomb_is_refused(shared: TestClient) -> None:
    """What unfolds to more than allowed is not unfolded to its end."""
    member = tarfile.TarInfo("manifest.json")
    bomb = packed_raw([(member, bytes(600 * 2**20))])
    assert len(bomb) < 2**20
    answer = shared.post("/v1/bundles", content=bomb, headers=TYPE)
    assert (answer.status_code, answer.json()["code"]) == (413, "bundle-too-large")


def test_another_type_is_refused(shared: TestClient) -> None:
    """415 names the type that is taken."""
    answer = shared.post("/v1/bundles", json={})
    assert answer.status_code == 415


def test_a_contradiction_is_a_conflict(
    source: tuple[bytes, list[str]], client: TestClient, tmp_path: Path
) -> None:
    """A key that is stored with another meaning is not overwritten."""
    import sqlite3  # noqa: PLC0415 - only here

    data, keys = source
    assert client.post("/v1/bundles", content=data, headers=TYPE).status_code == 202
    database = sqlite3.connect(tmp_path / "fuseplan" / "fuseplan.db")
    database.execute("UPDATE plans SET target = 'h200' WHERE key = ?", [keys[0]])
    database.commit()
    database.close()
    answer = client.post("/v1/bundles", content=data, headers=TYPE)
    assert (answer.status_code, answer.json()["code"]) == (409, "bundle-conflict")
