"""Tests that what was ever published is still read: a stored file for each version.

`python -m tests.service.test_compatibility` adds the files of versions that have none;
a file that is there is never written again.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from fastapi.testclient import TestClient

from service import bundle, signing
from service.app import create_app
from service.builds import LOCK_SCHEMA, LockedPlan, LockFile
from service.errors import BadLock
from service.store.plans import BODY_TYPE
from tests.service.api.conftest import Start, settings, start
from tests.service.api.models import graph_json
from tests.service.api.test_bundles import TYPE
from tuner.document import PLAN_SCHEMA
from tuner.frontend.document import SCHEMA as GRAPH_SCHEMA

__all__ = ["start"]  # a fixture

STORED: Final = Path(__file__).parent / "stored"
PAGE: Final = Path(__file__).parents[2] / "docs" / "compatibility.md"
API: Final = "fuseplan.api/1"
PUBLISHED: Final = (
    API,
    bundle.SCHEMA,
    GRAPH_SCHEMA,
    LOCK_SCHEMA,
    PLAN_SCHEMA,
    signing.SCHEMA,
)
"""The newest version of each schema that leaves the program."""

Json = dict[str, Any]


def file_of(schema: str) -> Path:
    """The stored file of a version."""
    kind, _, number = schema.removeprefix("fuseplan.").partition("/")
    suffix = ".tar.zst" if kind == "bundle" else ".json"
    return STORED / f"{kind}-{number}{suffix}"


def versions(kind: str) -> list[Path]:
    """Stored files of every version of a schema."""
    return sorted(STORED.glob(f"{kind}-*"))


def told(document: Json) -> Json:
    """What clients rely on in an OpenAPI document: operations and names of fields."""
    schemas = document["components"]["schemas"]
    return {
        "operations": {
            operation["operationId"]: [method, path]
            for path, operations in document["paths"].items()
            for method, operation in operations.items()
        },
        "schemas": {
            name: sorted(schema["properties"])
            for name, schema in schemas.items()
            if "properties" in schema
        },
    }


def make(client: TestClient, folder: Path) -> Mapping[str, bytes]:
    """A file of the newest version of each schema."""
    graph = graph_json()
    answer = client.post("/v1/plans", json={"graph": graph, "target": "h100-sxm"})
    plan = client.get(f"/v1/plans/{answer.json()['plan_key']}")
    locked = LockedPlan(
        digest=digest_of(plan),
        evidence="analytic",
        target="h100-sxm",
        model="small.json",
    )
    lock = LockFile(
        toolchain={"codegen_revision": 1}, plans={plan_key(answer.json()): locked}
    )
    key = folder / "key.pem"
    signing.create_key(key)
    text = json.dumps
    return {
        API: text(told(client.get("/openapi.json").json()), indent=1).encode(),
        bundle.SCHEMA: client.get("/v1/bundles").content,
        GRAPH_SCHEMA: text(graph, indent=1).encode(),
        LOCK_SCHEMA: lock.text().encode(),
        PLAN_SCHEMA: plan.content,
        signing.SCHEMA: signing.sign(b"fuseplan", key),
    }


def plan_key(answer: Json) -> str:
    """Key of a submission's plan."""
    return str(answer["plan_key"])


def digest_of(answer: Any) -> str:
    """Digest that an answer's tag tells."""
    return str(answer.headers["ETag"].strip('"'))


@pytest.mark.parametrize("schema", PUBLISHED)
def test_every_published_version_has_its_file(schema: str) -> None:
    """And the page about compatibility names it."""
    assert file_of(schema).is_file(), "run `python -m tests.service.test_compatibility`"
    assert f"`{schema}`" in PAGE.read_text()


def test_the_page_names_nothing_else() -> None:
    """Each schema that the page names as stored is a file here."""
    rows = re.findall(r"^\| `(fuseplan\.\w+/\d+)`", PAGE.read_text(), re.MULTILINE)
    assert {file_of(one).name for one in rows} == {one.name for one in STORED.iterdir()}


@pytest.mark.parametrize("path", versions("bundle"), ids=lambda path: path.name)
def test_a_stored_bundle_is_imported(start: Start, path: Path) -> None:
    """Its plans are served, explained, compared and shown as those of today."""
    client = start()
    taken = client.post("/v1/bundles", content=path.read_bytes(), headers=TYPE)
    assert taken.status_code == 202, taken.text
    for key in taken.json()["added"]:
        plan = client.get(f"/v1/plans/{key}")
        assert plan.headers["Content-Type"] == BODY_TYPE
        node = plan.json()["kernels"][0]["nodes"][0]
        explained = client.get(
            f"/v1/plans/{key}/explain", params={"a": node, "b": node}
        )
        assert explained.status_code == 200, explained.text
        compared = client.get(f"/v1/plans/{key}/diff/{key}").json()
        assert compared["kernels"]["changed"] == []
        assert client.get(f"/plans/{key}").status_code == 200


@pytest.mark.parametrize("path", versions("plan"), ids=lambda path: path.name)
def test_a_stored_plan_says_what_it_is(path: Path) -> None:
    """Schema, kernels, totals and the graph that they are of."""
    plan = json.loads(path.read_bytes())
    assert plan["schema"].startswith("fuseplan.plan/")
    assert plan["kernels"][0]["sources"]
    assert plan["objective_seconds"] >= plan["bound_seconds"] > 0


@pytest.mark.parametrize("path", versions("graph"), ids=lambda path: path.name)
def test_a_stored_graph_is_planned(start: Start, path: Path) -> None:
    """It means what it meant: its fingerprint is that of the stored plans."""
    graph = json.loads(path.read_bytes())
    answer = start().post("/v1/plans", json={"graph": graph, "target": "h100-sxm"})
    assert answer.status_code == 200, answer.text
    opened = bundle.unpack(file_of(bundle.SCHEMA).read_bytes(), max_bytes=2**26)
    client = start()
    client.post("/v1/plans", json={"graph": graph, "target": "h100-sxm"})
    listed = client.get("/v1/plans").json()["plans"]
    assert {one["graph"] for one in listed} == {one.graph_hash for one in opened.plans}


@pytest.mark.parametrize("path", versions("lock"), ids=lambda path: path.name)
def test_a_stored_lock_is_read(path: Path) -> None:
    """Its keys and digests are those that a build is held to."""
    assert LockFile.read(path).plans


@pytest.mark.parametrize("path", versions("signature"), ids=lambda path: path.name)
def test_a_stored_signature_is_checked(path: Path) -> None:
    """It is still of its key and its bytes."""
    statement = path.read_bytes()
    signing.check(statement, b"fuseplan", {json.loads(statement)["key"]})


@pytest.mark.parametrize("path", versions("api"), ids=lambda path: path.name)
def test_nothing_of_the_interface_was_taken_away(start: Start, path: Path) -> None:
    """Operations keep their ids and paths, bodies their fields; both only grow."""
    before = json.loads(path.read_bytes())
    now = told(start().get("/openapi.json").json())
    for name, place in before["operations"].items():
        assert now["operations"].get(name) == place, name
    for name, fields in before["schemas"].items():
        assert set(fields) <= set(now["schemas"].get(name, ())), name


def test_an_unknown_version_is_refused(start: Start, tmp_path: Path) -> None:
    """A file from the future is told as such, not read by halves."""
    path = tmp_path / "fuseplan.lock"
    path.write_text(file_of(LOCK_SCHEMA).read_text().replace("lock/1", "lock/999"))
    with pytest.raises(BadLock, match="schema"):
        LockFile.read(path)
    graph = {**graph_json(), "schema": "fuseplan.graph/999"}
    answer = start().post("/v1/plans", json={"graph": graph, "target": "h100-sxm"})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid-model")
    assert GRAPH_SCHEMA in answer.json()["hint"]


def write_missing() -> None:
    """Add the files of versions that have none."""
    STORED.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with TestClient(create_app(settings(folder))) as client:
            for schema, data in make(client, folder).items():
                if not file_of(schema).exists():
                    file_of(schema).write_bytes(data)


if __name__ == "__main__":
    write_missing()
