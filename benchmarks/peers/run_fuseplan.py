"""Our side: the whole plan, tuned with a small budget, through the executor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tuner.execution import program
from tuner.model import Model, load
from tuner.plan import GENERATED, Options, Plan
from tuner.runtime.devices import open_backend
from tuner.runtime.executor import Executor
from tuner.runtime.runner import Runner
from tuner.search.budget import Budget
from tuner.search.session import TuningSession


class Library:
    """The planner, the tuner and the executor."""

    def __init__(self) -> None:
        self._backend = open_backend("cpu")
        self.version = f"fuseplan, {self._backend.toolchain}"
        self.setting = "tuned plan, buffers placed once, one wait for a batch of calls"

    def load(self, folder: Path, about: dict[str, Any]) -> Loaded:
        """Tune, and bind the plan."""
        model = load((folder / "model.onnx").read_bytes())
        options = Options(exactness=about["exactness"])
        plan = tuned(model, options, about["budget_seconds"])
        return Loaded(self._backend, model, plan, folder, about)


def tuned(model: Model, options: Options, budget_seconds: float) -> Plan:
    """A plan measured within a budget; the measuring process ends with it."""
    budget = Budget(seconds=budget_seconds, trials=200)
    session = TuningSession(model, "cpu", options, budget)
    with Runner("cpu") as runner:
        while (batch := session.propose()) is not None:
            session.observe(batch, session.measure(batch, runner))
    return session.plan()


class Loaded:
    """A program bound to its buffers.

    Attributes:
        details: what the plan consists of.
    """

    def __init__(
        self,
        backend: Any,
        model: Model,
        plan: Plan,
        folder: Path,
        about: dict[str, Any],
    ) -> None:
        self._executor = Executor(
            program(model, plan, "opencl"), _weights(model), backend, alone=True
        )
        self._feeds = {
            tensor: np.load(folder / f"{model.names[tensor][0]}.npy")
            for tensor in model.graph.inputs
        }
        self._executor.load(self._feeds)
        self._outputs = model.graph.outputs
        families = [kernel.family for kernel in plan.kernels]
        self.details = {
            "kernels": len(families),
            "generated": sum(family in GENERATED for family in families),
            "families": [str(family) for family in families],
            "schedules": [
                k.schedule.as_dict if k.schedule is not None else None
                for k in plan.kernels
            ],
            "exactness": about["exactness"],
        }

    def elapsed(self, calls: int) -> float:
        """Run so often."""
        return self._executor.elapsed(calls)

    def outputs(self) -> list[np.ndarray[Any, Any]]:
        """In the order of the user's model."""
        made = self._executor.run(self._feeds)
        return [made[name] for name in self._outputs]


def _weights(model: Model) -> dict[str, Any]:
    names = (*model.graph.weights, *model.prepare.weights, *model.prepare.inputs)
    values = model.imported.values
    return {
        tensor: values[name]
        for tensor in names
        for name in model.names.get(tensor, ())
        if name in values
    }


def open_library(peer: str) -> Library:
    """Open the device."""
    del peer
    return Library()
