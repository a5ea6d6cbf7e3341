"""PyTorch, eager or compiled by Inductor."""

from __future__ import annotations

import importlib
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.torch_forms import Forms
from benchmarks.peers.worker import arrays_of


class Library:
    """PyTorch without gradients; its allocator keeps the blocks of the last call."""

    def __init__(self, peer: str) -> None:
        self._torch = importlib.import_module("torch")
        self._compiles = peer == "inductor"
        self.version = f"torch {self._torch.__version__}"
        how = "torch.compile, fixed shapes" if self._compiles else "eager"
        self.setting = f"{how}, no gradients, freed blocks reused, huge pages"

    def load(self, folder: Path, about: dict[str, Any]) -> Loaded:
        """The function and its arguments."""
        torch = self._torch
        torch.set_num_threads(about["threads"])
        torch.set_grad_enabled(False)
        function = getattr(Forms(torch, about["settings"]), about["name"])
        if self._compiles:
            importlib.import_module("torch._dynamo").reset()
            function = torch.compile(function, fullgraph=True, dynamic=False)
        arrays = arrays_of(folder, [*about["inputs"], *about["weights"]])
        return Loaded(function, [torch.from_numpy(a) for a in arrays.values()])


class Loaded:
    """A function with its arguments."""

    def __init__(self, function: Any, arguments: list[Any]) -> None:
        self._function = function
        self._arguments = arguments
        self._made: Any = None

    def elapsed(self, calls: int) -> float:
        """Call so often."""
        function, arguments = self._function, self._arguments
        start = time.perf_counter()
        for _ in range(calls):
            self._made = None
            self._made = function(*arguments)
        return time.perf_counter() - start

    def outputs(self) -> list[np.ndarray[Any, Any]]:
        """Of the last call."""
        made = self._made if isinstance(self._made, tuple) else (self._made,)
        return [tensor.numpy() for tensor in made]


def open_library(peer: str) -> Library:
    """Import it."""
    return Library(peer)
