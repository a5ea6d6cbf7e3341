"""Tests that the first who asks does not wait for what comes once."""

from __future__ import annotations

from fastapi.testclient import TestClient

NOBODY = "0" * 64


def test_the_first_lookup_finds_its_queries_made(client: TestClient) -> None:
    """Nothing that lookups ask is put into the database's words by a request."""
    compiled = client.app.state.context.database.reader._compiled_cache  # type: ignore[attr-defined]
    before = set(compiled)
    assert before
    for evidence in ("analytic", "compiled", "measured"):
        path = f"/v1/plans/{NOBODY}?evidence={evidence}"
        assert client.get(path).status_code == 404
        keys = {"keys": [NOBODY], "evidence": evidence}
        assert client.post("/v1/plans:lookup", json=keys).status_code == 200
    assert client.get(f"/v1/blobs/sha256/{NOBODY}").status_code == 404
    assert client.get(f"/v1/plans/{NOBODY}", headers={"Authorization": "Bearer x"})
    assert set(compiled) == before
