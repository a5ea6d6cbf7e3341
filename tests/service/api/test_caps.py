"""The memory cap over HTTP."""

from __future__ import annotations

from fastapi.testclient import TestClient

from tests.service.api.models import graph_json


def test_a_cap_is_kept_or_refused_with_the_least_found(client: TestClient) -> None:
    """A wide cap is part of the key alone; an impossible one names what there is."""
    body = {"graph": graph_json(), "target": "cpu"}
    free = client.post("/v1/plans", json=body).json()
    wide = client.post(
        "/v1/plans", json={**body, "options": {"memory_cap_bytes": 1 << 40}}
    ).json()
    assert wide["plan_key"] != free["plan_key"]
    assert wide["plan"]["kernels"] == free["plan"]["kernels"]
    refused = client.post(
        "/v1/plans", json={**body, "options": {"memory_cap_bytes": 1}}
    )
    assert refused.status_code == 422
    problem = refused.json()
    assert problem["code"] == "constraints-unsatisfiable"
    least = int(problem["hint"].split("the cap to ")[1].split()[0])
    kept = client.post(
        "/v1/plans", json={**body, "options": {"memory_cap_bytes": least}}
    )
    assert kept.status_code == 200
    assert kept.json()["plan"]["peak_memory_bytes"] <= least
