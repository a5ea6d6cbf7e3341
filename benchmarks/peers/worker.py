"""One library in a process of its own: loads a case, and runs it when asked.

    python -m benchmarks.peers.worker PEER

Reads one JSON request a line from standard input and writes one JSON answer a line.
It runs in the peers' environment, so it imports nothing of the product but by name.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Protocol

import numpy as np

Arrays = dict[str, np.ndarray[Any, Any]]
WARM_SECONDS: Final = 0.01
_MOST_CALLS: Final = 5000
_PARENT_DEATH: Final = 1
"""PR_SET_PDEATHSIG of Linux."""


class Loaded(Protocol):
    """A case in a library's hands."""

    def elapsed(self, calls: int) -> float:
        """Seconds for so many calls in a row and one wait for the last."""

    def outputs(self) -> list[np.ndarray[Any, Any]]:
        """Results of the last call, in the case's order."""


MODULES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "fuseplan": "benchmarks.peers.run_fuseplan",
        "onnxruntime": "benchmarks.peers.run_onnxruntime",
        "torch": "benchmarks.peers.run_torch",
        "inductor": "benchmarks.peers.run_torch",
        "tvm": "benchmarks.peers.run_tvm",
        "jax": "benchmarks.peers.run_jax",
        "triad": "benchmarks.peers.run_triad",
    }
)


def aligned(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A copy that begins at a page border."""
    raw = np.empty(array.nbytes + 4096, np.uint8)
    start = -raw.ctypes.data % 4096
    made = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    made[...] = array
    return made


def arrays_of(folder: Path, names: list[str]) -> Arrays:
    """Stored arrays by name, in the order of the names."""
    return {name: aligned(np.load(folder / f"{name}.npy")) for name in names}


def errors(made: list[Any], truths: list[Path]) -> list[dict[str, float]]:
    """Greatest difference from each stored reference, and the reference's size."""
    found = []
    for array, path in zip(made, truths, strict=True):
        truth = np.load(path).astype(np.float64)
        if array.shape != truth.shape:
            raise ValueError(f"{path.stem}: shape {array.shape}, not {truth.shape}")
        worst = np.abs(np.asarray(array, np.float64) - truth).max(initial=0.0)
        found.append(
            {"error": float(worst), "largest": float(np.abs(truth).max(initial=0.0))}
        )
    return found


class Worker:
    """Answers requests."""

    def __init__(self, peer: str) -> None:
        self._peer = peer
        module = importlib.import_module(MODULES[peer])
        self._library = module.open_library(peer)
        self._loaded: Loaded | None = None
        self._calls = 1

    def load(self, folder: Path) -> dict[str, Any]:
        """Load a case, run it once, and compare its results."""
        self._loaded = None
        gc.collect()
        about = json.loads((folder / "case.json").read_text(encoding="utf-8"))
        start = time.perf_counter()
        self._loaded = self._library.load(folder, about)
        self._loaded.elapsed(1)
        seconds = time.perf_counter() - start
        truths = [folder / f"truth_{name}.npy" for name in about["outputs"]]
        made = self._loaded.outputs() if about["outputs"] else []
        answer = {"errors": errors(made, truths), "load_seconds": seconds}
        details = getattr(self._loaded, "details", {})
        return {**answer, "details": details}

    def sample(self, seconds: float) -> dict[str, Any]:
        """Seconds of a call, in a batch that fills about the given time."""
        assert self._loaded is not None
        once = self._loaded.elapsed(1)
        warm = max(1, min(int(WARM_SECONDS / max(once, 1e-7)), _MOST_CALLS))
        each = self._loaded.elapsed(warm) / warm
        calls = max(1, min(int(seconds / max(each, 1e-7)), _MOST_CALLS))
        return {"seconds": self._loaded.elapsed(calls) / calls, "calls": calls}

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """One answer."""
        if request["do"] == "load":
            return self.load(Path(request["folder"]))
        if request["do"] == "drop":
            self._loaded = None
            gc.collect()
            return {}
        return self.sample(request["seconds"])

    def hello(self) -> dict[str, Any]:
        """What runs here."""
        return {"version": self._library.version, "setting": self._library.setting}


def main() -> None:
    """Serve until standard input ends; every failure becomes an answer."""
    ctypes.CDLL(None).prctl(_PARENT_DEATH, signal.SIGKILL)  # a stopped one sees no end
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print must not be taken for an answer

    def tell(answer: Mapping[str, Any]) -> None:
        out.write(json.dumps(answer) + "\n")
        out.flush()

    try:
        worker = Worker(sys.argv[1])
    except Exception as error:  # noqa: BLE001 - a library that cannot be had is told
        tell({"missing": f"{type(error).__name__}: {error}"[:500]})
        return
    tell(worker.hello())
    for line in sys.stdin:
        try:
            tell(worker.answer(json.loads(line)))
        except Exception as error:  # noqa: BLE001 - likewise
            tell({"failed": f"{type(error).__name__}: {error}"[:500]})


if __name__ == "__main__":
    main()
