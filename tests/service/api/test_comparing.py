"""Tests of batch lookup, compatible plans, explanations and differences."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.service.api.conftest import Start
from tests.service.api.models import graph_json
from tuner import document


def submit(client: TestClient, width: int = 64, **more: object) -> dict[str, Any]:
    """Hand in the small graph for the processor."""
    body = {"graph": graph_json(width=width), "target": "cpu", **more}
    answer = client.post("/v1/plans", json=body)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def test_many_keys_are_looked_up_at_once(client: TestClient) -> None:
    """Each key is found or missing with its reason, and told once."""
    stored = submit(client)
    keys = [stored["plan_key"], "0" * 64, stored["plan_key"]]
    answer = client.post("/v1/plans:lookup", json={"keys": keys})
    measured = client.post(
        "/v1/plans:lookup", json={"keys": keys, "evidence": "measured"}
    )
    assert answer.status_code == 200
    [found] = answer.json()["found"]
    assert (found["key"], found["digest"]) == (stored["plan_key"], stored["digest"])
    assert answer.json()["missing"] == [{"key": "0" * 64, "reason": "unknown"}]
    assert measured.json()["found"] == []
    assert measured.json()["missing"][0]["reason"] == "never_tuned"


def test_a_lookup_has_a_limit(client: TestClient) -> None:
    """A thousand keys are answered, one more is refused; of wrong ones one is told."""
    keys = [f"{number:064x}" for number in range(1001)]
    full = client.post("/v1/plans:lookup", json={"keys": keys[:1000]})
    over = client.post("/v1/plans:lookup", json={"keys": keys})
    empty = client.post("/v1/plans:lookup", json={"keys": []})
    wrong = client.post("/v1/plans:lookup", json={"keys": ["x"]})
    assert len(full.json()["missing"]) == 1000
    twice = client.post(
        "/v1/plans:lookup",
        content=f'{{"keys": [], "keys": ["{keys[0]}"]}}',
        headers={"Content-Type": "application/json"},
    )
    assert (over.status_code, over.json()["code"]) == (413, "too-many-keys")
    assert (twice.status_code, twice.json()["code"]) == (400, "malformed-body")
    assert "'keys' twice" in twice.json()["detail"]
    assert empty.json() == {"found": [], "missing": []}
    assert wrong.status_code == 422
    many = client.post("/v1/plans:lookup", json={"keys": [*keys, *["x"] * 5000]})
    assert (many.status_code, many.json()["where"]) == (422, "body.keys.1001")
    assert len(many.json()["errors"]) == 1


def as_of_another_toolchain(folder: Path, key: str) -> str:
    """Store a copy of a plan as an older code generator would have; its key."""
    other = "a" * 64
    file = folder / "fuseplan" / "fuseplan.db"
    with closing(sqlite3.connect(file)) as database:
        parts = json.loads(
            database.execute("SELECT parts FROM plans WHERE key = ?", [key]).fetchone()[
                0
            ]
        )
        parts["toolchain"] = document.digest(b"older")
        database.execute(
            "INSERT INTO plans (key, graph_hash, target, parts, options, created_at)"
            " SELECT ?, graph_hash, target, ?, options, created_at FROM plans"
            " WHERE key = ?",
            [other, json.dumps(parts), key],
        )
        database.execute(
            "INSERT INTO plan_revisions (key, revision, evidence, digest, seconds,"
            " objective_seconds, bound_seconds, kernels, created_at)"
            " SELECT ?, 1, 'measured', digest, seconds, objective_seconds,"
            " bound_seconds, kernels, created_at FROM plan_revisions WHERE key = ?",
            [other, key],
        )
        database.execute(
            "INSERT INTO plan_pointers (key, evidence, revision_id)"
            " SELECT key, evidence, id FROM plan_revisions WHERE key = ?",
            [other],
        )
        database.commit()
    return other


def test_a_compatible_plan_is_given_only_when_asked_for(
    client: TestClient, tmp_path: Path
) -> None:
    """It says that it is one, by which toolchain it differs, and its own key."""
    key = submit(client)["plan_key"]
    other = as_of_another_toolchain(tmp_path, key)
    asked = {"evidence": "measured"}
    exact = client.get(f"/v1/plans/{key}", params=asked)
    near = client.get(f"/v1/plans/{key}", params={**asked, "match": "compatible"})
    own = client.get(f"/v1/plans/{key}", params={"match": "compatible"})
    assert (exact.status_code, exact.json()["reason"]) == (404, "toolchain_mismatch")
    assert near.status_code == 200
    assert near.headers["Fuseplan-Match"] == "compatible"
    assert near.headers["Fuseplan-Differs"] == "toolchain"
    assert near.headers["Fuseplan-Plan-Key"] == other
    assert near.headers["Fuseplan-Evidence"] == "measured"
    assert own.headers["Fuseplan-Match"] == "exact"


def test_an_unknown_key_has_no_compatible_plan(client: TestClient) -> None:
    """What nobody asked for is like nothing."""
    answer = client.get(f"/v1/plans/{'0' * 64}", params={"match": "compatible"})
    assert (answer.status_code, answer.json()["reason"]) == (404, "unknown")


def test_fused_nodes_are_explained(client: TestClient) -> None:
    """Which kernel has both, what stays in registers, and what a cut would cost."""
    key = submit(client)["plan_key"]
    told = client.get(f"/v1/plans/{key}/explain", params={"a": "n0", "b": "n1"}).json()
    assert told["fused"] is True
    [tensor] = told["tensors"]
    assert tensor["bytes"] == 32 * 64 * 4
    assert told["other"]["extra_bytes"] == 2 * tensor["bytes"]
    assert told["other"]["extra_seconds"] > 0


def test_separate_nodes_are_explained(client: TestClient) -> None:
    """A pin keeps two nodes apart: the tensor that crosses is named with its bytes."""
    pins = {"pins": [{"fuse": False, "nodes": ["add", "tanh"]}]}
    answer = submit(client, options=pins)
    key, names = answer["plan_key"], answer["names"]
    id_of = {name: id_ for id_, given in names.items() for name in given}
    asked = {"a": id_of["add"], "b": id_of["tanh"]}
    told = client.get(f"/v1/plans/{key}/explain", params=asked).json()
    assert told["fused"] is False
    assert [one["bytes"] for one in told["tensors"]] == [32 * 64 * 4]
    assert told["other"]["choice"] == "one kernel"
    assert told["other"]["extra_bytes"] < 0


def test_the_other_choice_is_solved(start: Start) -> None:
    """Its price is that of a plan with the pin, asked for apart, in pages too."""
    client = start(worker=True, device="null:0")
    plain = submit(client)
    apart = submit(client, options={"pins": [{"fuse": False, "nodes": ["n0", "n1"]}]})
    asked = {"graph": graph_json(), "target": "cpu", "mode": "tuned"}
    key = client.post("/v1/plans", json=asked).json()["plan_key"]
    nodes = {"a": "relu", "b": "n1"}
    told = client.get(f"/v1/plans/{key}/explain/solved", params=nodes).json()
    assert told["fused"] is True
    assert told["objective_seconds"] == plain["plan"]["objective_seconds"]
    assert told["other_objective_seconds"] == apart["plan"]["objective_seconds"]
    assert told["other_objective_seconds"] > told["objective_seconds"]
    assert "launches +1 kernels" in told["reason"]
    part = client.get(f"/plans/{key}/explain/solved", params=nodes)
    page = client.get(f"/plans/{key}/explain", params={**nodes, "solve": True})
    for text in (part.text, page.text):
        assert "Solved: apart, the best plan takes" in text
        assert "launches +1 kernels" in text
    assert "<html" not in part.text


def test_a_choice_that_no_plan_has_says_why(start: Start) -> None:
    """Two nodes that are one, and nodes that a pin keeps apart, have no other price."""
    client = start(worker=True, device="null:0")
    pins = {"pins": [{"fuse": False, "nodes": ["n0", "n1"]}]}
    asked = {"graph": graph_json(), "target": "cpu", "mode": "tuned", "options": pins}
    key = client.post("/v1/plans", json=asked).json()["plan_key"]
    told = client.get(f"/v1/plans/{key}/explain/solved?a=n0&b=n1").json()
    assert told["other_objective_seconds"] is None
    assert told["reason"]
    assert "no plan has the other choice" in (
        client.get(f"/plans/{key}/explain/solved?a=n0&b=n1").text
    )


def with_prepared_weight() -> dict[str, Any]:
    """The small graph, with a weight that is halved once, and a view at its end."""
    graph = graph_json()
    graph["weights"] = [{"name": "w", "dtype": "f32", "shape": [32, 64]}]
    more = (("Neg", ["w"], "v", {}), ("Mul", ["y", "v"], "z", {}))
    flat = ("Flatten", ["z"], "f", {"axis": 0})
    for op, inputs, output, attributes in (*more, flat):
        graph["nodes"].append(
            {
                "name": op.lower(),
                "op": op,
                "domain": "",
                "inputs": inputs,
                "outputs": [output],
                "attributes": attributes,
            }
        )
    graph["outputs"] = ["f"]
    return graph


def test_what_no_kernel_computes_has_no_other_choice(start: Start) -> None:
    """What runs once at load, a node and itself: an answer that says so, no error."""
    client = start(worker=True, device="null:0")
    asked = {"graph": with_prepared_weight(), "target": "cpu", "mode": "tuned"}
    answer = client.post("/v1/plans", json=asked).json()
    key = answer["plan_key"]
    at_load = answer["plan"]["prepare_graph"]["nodes"][0]["id"]
    idle = {"a": "neg", "b": "mul"}
    told = client.get(f"/v1/plans/{key}/explain", params=idle).json()
    solved = client.get(f"/v1/plans/{key}/explain/solved", params=idle)
    same = client.get(f"/v1/plans/{key}/explain/solved?a=relu&b=relu").json()
    assert told["reason"] == f"{at_load} runs once at load: it needs no kernel"
    assert (told["fused"], told["other"]) == (False, None)
    assert solved.status_code == 200, solved.text
    assert solved.json()["other_objective_seconds"] is None
    assert (
        solved.json()["reason"] == f"{at_load} runs once at load: no kernel computes it"
    )
    assert same["other_objective_seconds"] is None
    assert "one node of the plan" in same["reason"]
    page = client.get(f"/plans/{key}/explain/solved", params=idle).text
    assert "no plan has the other choice" in page


def test_a_choice_is_not_solved_without_the_model(client: TestClient) -> None:
    """A plan that no job was for has no model: the message says what to do."""
    key = submit(client)["plan_key"]
    answer = client.get(f"/v1/plans/{key}/explain/solved?a=n0&b=n1")
    assert (answer.status_code, answer.json()["code"]) == (409, "model-not-stored")
    assert "mode=tuned" in answer.json()["hint"]
    assert "Not solved: " in client.get(f"/plans/{key}/explain/solved?a=n0&b=n1").text


def test_an_unknown_node_is_told(client: TestClient) -> None:
    """404 with a code of its own."""
    key = submit(client)["plan_key"]
    answer = client.get(f"/v1/plans/{key}/explain", params={"a": "n0", "b": "zzz"})
    assert (answer.status_code, answer.json()["code"]) == (404, "node-not-found")


def test_two_plans_are_compared(client: TestClient) -> None:
    """Kernels are matched by their nodes; another graph is compared in totals only."""
    first = submit(client)["plan_key"]
    apart = submit(client, options={"pins": [{"fuse": False, "nodes": ["n0", "n1"]}]})
    wide = submit(client, width=128)["plan_key"]
    told = client.get(f"/v1/plans/{first}/diff/{apart['plan_key']}").json()
    assert told["same_graph"] is True
    assert told["differing"] == ["options"]
    assert told["totals"]["kernels"] == {"a": 1.0, "b": 2.0}
    assert len(told["kernels"]["only_a"]) == 1
    assert len(told["kernels"]["only_b"]) == 2
    same = client.get(f"/v1/plans/{first}/diff/{first}").json()
    assert same["kernels"] == {"same": 1, "changed": [], "only_a": [], "only_b": []}
    other = client.get(f"/v1/plans/{first}/diff/{wide}").json()
    assert (other["same_graph"], other["kernels"]) == (False, None)


@pytest.mark.parametrize("path", ["explain?a=n0&b=n1", f"diff/{'1' * 64}"])
def test_a_missing_plan_cannot_be_explained(shared: TestClient, path: str) -> None:
    """404 with the reason, as for the plan itself."""
    answer = shared.get(f"/v1/plans/{'0' * 64}/{path}")
    assert (answer.status_code, answer.json()["reason"]) == (404, "unknown")


def test_lookups_are_counted(start: Start) -> None:
    """Hits and misses by reason are told apart in the metrics."""
    client = start()
    key = submit(client)["plan_key"]
    client.get(f"/v1/plans/{key}")
    client.get(f"/v1/plans/{key}", params={"evidence": "measured"})
    client.post("/v1/plans:lookup", json={"keys": [key, "0" * 64]})
    lines = client.get("/metrics").text.splitlines()
    assert 'fuseplan_lookups_total{result="hit"} 2.0' in lines
    assert 'fuseplan_lookups_total{result="never_tuned"} 1.0' in lines
    assert 'fuseplan_lookups_total{result="unknown"} 1.0' in lines
    assert any(
        line.startswith("fuseplan_http_requests_total{")
        and 'route="/v1/plans/{key}"' in line
        and 'status="404"' in line
        for line in lines
    )
    assert 'fuseplan_problems_total{code="plan-not-found"} 1.0' in lines
