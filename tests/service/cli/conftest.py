"""The command line in this process, with folders of its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from service.cli import main

EXAMPLES = Path(__file__).parents[3] / "examples"


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as JSON."""
        return json.loads(self.out)


Fuseplan = Callable[..., Ended]


@pytest.fixture
def fuseplan(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Fuseplan:
    """Runs a command; its data and logs stay in the test's folder."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def run(*words: object) -> Ended:
        capsys.readouterr()
        code = main([str(word) for word in words])
        said = capsys.readouterr()
        return Ended(code=code, out=said.out, err=said.err)

    return run


def softmax_graph(rows: int | str = 64) -> dict[str, Any]:
    """A small model as graph JSON: a softmax over rows, scaled first."""
    value = {"dtype": "f32", "shape": [rows, 256]}
    return {
        "schema": "fuseplan.graph/1",
        "opset": {"": 18},
        "inputs": [{"name": "scores", **value}, {"name": "mask", **value}],
        "weights": [],
        "constants": [],
        "nodes": [
            {
                "name": "masked",
                "op": "Add",
                "domain": "",
                "inputs": ["scores", "mask"],
                "outputs": ["sum"],
                "attributes": {},
            },
            {
                "name": "softmax",
                "op": "Softmax",
                "domain": "",
                "inputs": ["sum"],
                "outputs": ["weights"],
                "attributes": {"axis": -1},
            },
        ],
        "outputs": ["weights"],
    }


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A small model file."""
    path = tmp_path / "softmax.json"
    path.write_text(json.dumps(softmax_graph()))
    return path
