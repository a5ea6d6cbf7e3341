"""Tests that the pages about the service, and its OpenAPI document, are complete."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from service.errors.table import PROBLEMS
from service.settings import Settings

DOCS = Path(__file__).parents[3] / "docs"


def sections(text: str) -> dict[str, str]:
    """Parts of a page by the heading of the second level."""
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_every_code_has_cause_and_cure() -> None:
    """The page of errors has each code of the table, in its order, and no other."""
    found = sections((DOCS / "errors.md").read_text())
    assert list(found) == list(PROBLEMS)
    for code, row in PROBLEMS.items():
        head = f"{row.title}. HTTP {row.status}, exit code {row.exit_code}."
        assert head in found[code]
        assert "- Cause: " in found[code]
        assert "- Cure: " in found[code]


def test_every_setting_is_explained() -> None:
    """The page for operators has each variable, and none that does not exist."""
    text = (DOCS / "operations.md").read_text()
    told = set(re.findall(r"`((?:FUSEPLAN|XDG)_[A-Z_]+)`", text))
    known = {
        str(field.validation_alias or f"FUSEPLAN_{name.upper()}")
        for name, field in Settings.model_fields.items()
    }
    assert told == known


def test_every_metric_is_explained(shared: TestClient) -> None:
    """The page for operators has each metric that the service gives."""
    shared.get(f"/v1/plans/{'0' * 64}")
    lines = shared.get("/metrics").text.splitlines()
    types = [line.split()[2:4] for line in lines if line.startswith("# TYPE")]
    given = {name for name, _ in types if not name.endswith("_created")}
    text = (DOCS / "operations.md").read_text()
    assert given == set(re.findall(r"^\| `(fuseplan_\w+)`", text, flags=re.MULTILINE))


def test_the_dashboard_for_operators_shows_every_metric(shared: TestClient) -> None:
    """Each panel asks for metrics that the service gives, and none is left out."""
    shared.get(f"/v1/plans/{'0' * 64}")
    lines = shared.get("/metrics").text.splitlines()
    given = {line.split()[2] for line in lines if line.startswith("# TYPE")}
    given = {name for name in given if not name.endswith("_created")}
    panels = json.loads((DOCS / "grafana.json").read_text())["panels"]
    asked = {
        name.removesuffix("_bucket")
        for panel in panels
        for target in panel["targets"]
        for name in re.findall(r"fuseplan_\w+", target["expr"])
    }
    assert asked == given


def test_every_route_of_the_page_exists(shared: TestClient) -> None:
    """What the page about HTTP names can be asked."""
    paths = set(shared.get("/openapi.json").json()["paths"]) | {"/openapi.json"}
    shapes = {re.sub(r"\{\w+\}", "{}", path) for path in paths}
    text = (DOCS / "api.md").read_text()
    named = re.findall(r"`(?:(?:GET|POST|PUT|DELETE) )?(/[^`\s?]+)", text)
    assert len(named) > 15
    for path in named:
        assert re.sub(r"\{\w+\}", "{}", path) in shapes, path


def bodies(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every body of every operation, as its media type object."""
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            answers = operation["responses"].items()
            for place, body in [("body", operation.get("requestBody", {})), *answers]:
                for kind, media in body.get("content", {}).items():
                    yield f"{method} {path} {place} {kind}", media


def test_every_body_has_an_example(shared: TestClient) -> None:
    """In the media type or in its schema, and every operation has id and summary."""
    document = shared.get("/openapi.json").json()
    schemas = document["components"]["schemas"]

    def has_example(media: dict[str, Any]) -> bool:
        schema = media.get("schema", {})
        if "$ref" in schema:
            schema = schemas[schema["$ref"].rpartition("/")[2]]
        return bool("example" in media or "examples" in media or schema.get("examples"))

    without = [place for place, media in bodies(document) if not has_example(media)]
    assert without == []
    for operations in document["paths"].values():
        for operation in operations.values():
            assert operation["operationId"]
            assert operation["summary"]


@pytest.mark.parametrize(
    "page",
    ["api.md", "compatibility.md", "errors.md", "operations.md", "threats.md"],
)
def test_links_between_pages_lead_somewhere(page: str) -> None:
    """A page that is named exists."""
    text = (DOCS / page).read_text()
    for name in re.findall(r"docs/(\w+\.md)", text):
        assert (DOCS / name).exists()
