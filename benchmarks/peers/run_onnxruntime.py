"""ONNX Runtime: all optimisations, inputs and outputs bound once."""

from __future__ import annotations

import importlib
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.worker import aligned, arrays_of


class Library:
    """ONNX Runtime."""

    def __init__(self) -> None:
        self._runtime = importlib.import_module("onnxruntime")
        self.version = f"onnxruntime {self._runtime.__version__}"
        self.setting = "all optimisations, spinning threads, IO binding"

    def load(self, folder: Path, about: dict[str, Any]) -> Loaded:
        """A session with everything bound."""
        options = self._runtime.SessionOptions()
        options.intra_op_num_threads = about["threads"]
        session = self._runtime.InferenceSession(
            str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"]
        )
        return Loaded(self._runtime, session, folder, about)


class Loaded:
    """A bound session."""

    def __init__(
        self, runtime: Any, session: Any, folder: Path, about: dict[str, Any]
    ) -> None:
        inputs = arrays_of(folder, about["inputs"])
        self._made = [
            aligned(np.zeros(shape, kind))
            for shape, kind in zip(about["shapes"], about["kinds"], strict=True)
        ]
        binding = session.io_binding()
        for name, array in inputs.items():
            value = runtime.OrtValue.ortvalue_from_numpy(array)
            binding.bind_ortvalue_input(name, value)
        for name, array in zip(about["outputs"], self._made, strict=True):
            binding.bind_output(
                name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data
            )
        self._kept = (binding, inputs)
        self._run = session._sess.run_with_iobinding  # noqa: SLF001 - as cheap as it gets
        self._arguments = (binding._iobinding, runtime.RunOptions())  # noqa: SLF001

    def elapsed(self, calls: int) -> float:
        """Run so often."""
        run, arguments = self._run, self._arguments
        start = time.perf_counter()
        for _ in range(calls):
            run(*arguments)
        return time.perf_counter() - start

    def outputs(self) -> list[np.ndarray[Any, Any]]:
        """What was written in place."""
        return self._made


def open_library(peer: str) -> Library:
    """Import it."""
    del peer
    return Library()
