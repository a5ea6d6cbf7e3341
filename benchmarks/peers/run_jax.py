"""JAX: jit, the outputs of one call given away as room for those of the next."""

from __future__ import annotations

import importlib
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.jax_forms import Forms
from benchmarks.peers.worker import arrays_of


class Library:
    """JAX on the CPU."""

    def __init__(self, peer: str) -> None:
        self._jax = importlib.import_module(peer)
        importlib.import_module(f"{peer}.numpy")
        self.version = f"jax {self._jax.__version__}"
        self.setting = "jit, outputs donated back"

    def load(self, folder: Path, about: dict[str, Any]) -> Loaded:
        """Compile the function."""
        jax = self._jax
        function = getattr(Forms(jax, about["settings"]), about["name"])

        def into(room: Any, *arguments: Any) -> Any:
            del room
            made = function(*arguments)
            return made if isinstance(made, tuple) else (made,)

        compiled = jax.jit(into, donate_argnums=0, keep_unused=True)
        arrays = arrays_of(folder, [*about["inputs"], *about["weights"]])
        room = tuple(
            jax.numpy.zeros(shape, kind)
            for shape, kind in zip(about["shapes"], about["kinds"], strict=True)
        )
        return Loaded(jax, compiled, room, [jax.device_put(a) for a in arrays.values()])


class Loaded:
    """A compiled function with its arguments."""

    def __init__(
        self, jax: Any, function: Any, room: Any, arguments: list[Any]
    ) -> None:
        self._wait = jax.block_until_ready
        self._function = function
        self._room = room
        self._arguments = arguments

    def elapsed(self, calls: int) -> float:
        """Call so often, and wait for the last."""
        function, arguments, room = self._function, self._arguments, self._room
        start = time.perf_counter()
        for _ in range(calls):
            room = function(room, *arguments)
        self._wait(room)
        seconds = time.perf_counter() - start
        self._room = room
        return seconds

    def outputs(self) -> list[np.ndarray[Any, Any]]:
        """Of the last call."""
        return [np.array(array) for array in self._room]


def open_library(peer: str) -> Library:
    """Import it."""
    return Library(peer)
