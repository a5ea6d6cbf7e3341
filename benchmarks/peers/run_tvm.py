"""TVM: its own import and fusion rules, loops scheduled by its rules for a CPU."""

from __future__ import annotations

import importlib
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.worker import arrays_of

_LANES = 16
_CHUNK = 4096


class Library:
    """TVM without measured tuning."""

    def __init__(self) -> None:
        self._tvm = importlib.import_module("tvm")
        for name in ("relax.frontend.onnx", "s_tir.dlight"):
            importlib.import_module(f"tvm.{name}")
        self.version = f"tvm {self._tvm.__version__}"
        self.setting = (
            "relax default pipeline, parallel and vectorised loops, not tuned"
        )

    def load(self, folder: Path, about: dict[str, Any]) -> Loaded:
        """Import the ONNX model, fuse, schedule and compile."""
        tvm, relax = self._tvm, self._tvm.relax
        onnx = importlib.import_module("onnx")
        model = onnx.load(folder / "plain.onnx")
        module = relax.frontend.onnx.from_onnx(model, keep_params_in_input=False)
        target = tvm.target.Target(_target(about["threads"], tvm))
        passes = relax.transform
        with target, tvm.transform.PassContext(opt_level=3):
            module = tvm.transform.Sequential(
                [
                    passes.LegalizeOps(),
                    passes.AnnotateTIROpPattern(),
                    passes.FoldConstant(),
                    passes.FuseOps(),
                    passes.FuseTIR(),
                ]
            )(module)
            module = scheduled(tvm, module, target)
            built = tvm.compile(module, target=target)
        machine = relax.VirtualMachine(built, tvm.cpu())
        arrays = arrays_of(folder, about["inputs"])
        inputs = [tvm.runtime.tensor(array) for array in arrays.values()]
        return Loaded(machine, inputs)


def _target(threads: int, tvm: Any) -> dict[str, Any]:
    cpu = tvm.target.codegen.llvm_get_system_cpu()
    return {"kind": "llvm", "mcpu": cpu, "num-cores": threads}


def scheduled(tvm: Any, module: Any, target: Any) -> Any:
    """TVM's rules for reductions, then parallel loops and vectors for the rest."""
    rules = importlib.import_module("tvm.s_tir.dlight.cpu")
    rule = rules.Reduction()
    found = {}
    for name, function in module.functions_items():
        if not isinstance(function, tvm.tirx.PrimFunc):
            continue
        try:
            made = rule.apply(function, target, False)
        except RuntimeError:
            made = None
        if made is None:
            made = _plain(tvm, function)
        found[name] = made.mod["main"].with_attrs(function.attrs)
    for name, function in found.items():
        module[name] = function
    return module


def _plain(tvm: Any, function: Any) -> Any:
    """Inline what can be; the outer loops in parallel, the innermost in vectors."""
    schedule = tvm.s_tir.Schedule(function)
    root = schedule.get_sblock("root")
    for block in schedule.get_child_blocks(root):
        try:
            schedule.compute_inline(block)
        except RuntimeError:
            continue
    for block in schedule.get_child_blocks(root):
        _spread(schedule, block)
    return schedule


def _spread(schedule: Any, block: Any) -> None:
    kinds = [int(var.iter_type) for var in schedule.get(block).iter_vars]
    loops = schedule.get_loops(block)
    if len(kinds) != len(loops):
        return
    spatial = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == 0]
    if not spatial or loops[: len(spatial)] != spatial:
        return
    whole = schedule.fuse(*spatial)
    if len(spatial) < len(loops):
        schedule.parallel(whole)
        return
    outer, _, inner = schedule.split(whole, [None, _CHUNK // _LANES, _LANES])
    schedule.parallel(outer)
    schedule.vectorize(inner)


class Loaded:
    """A compiled module with its arguments."""

    def __init__(self, machine: Any, inputs: list[Any]) -> None:
        self._machine = machine
        self._machine.set_input("main", *inputs)
        self._made: Any = None

    def elapsed(self, calls: int) -> float:
        """Run so often."""
        run = self._machine.invoke_stateful
        start = time.perf_counter()
        for _ in range(calls):
            run("main")
        return time.perf_counter() - start

    def outputs(self) -> list[np.ndarray[Any, Any]]:
        """Of the last call."""
        made = self._machine.get_outputs("main")
        many = made if isinstance(made, list | tuple) else [made]
        return [tensor.numpy() for tensor in many]


def open_library(peer: str) -> Library:
    """Import it."""
    del peer
    return Library()
