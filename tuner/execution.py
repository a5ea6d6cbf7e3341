"""A plan on a device: from planned kernels to a program, and a verified run of it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, NoReturn

from tuner.errors import (
    DeviceUnavailable,
    ModelTooLarge,
    UnsupportedModel,
    VerificationFailed,
)
from tuner.frontend.fill import random_inputs, random_weights
from tuner.frontend.opaque import random_operator
from tuner.ir.graph import extract
from tuner.ir.types import Array, TensorType
from tuner.model import Model
from tuner.plan import GENERATED, Language, Measurement, Plan, PlannedKernel
from tuner.runtime.requests import PlanRequest, PlanResult, Program, Step
from tuner.runtime.runner import Runner

LANGUAGES: Final[Mapping[str, Language]] = MappingProxyType(
    {"cpu": "opencl", "opencl": "opencl", "null": "opencl", "cuda": "cuda"}
)
"""The language in which a kind of device takes its kernels."""


_FEEDS: Final = 2
_ROUNDS: Final = 3
"""Turns of a plan and of the library, each alone in its process."""
_RUN_SAMPLE_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """A whole plan, run and compared with the library's run of the user's model.

    Attributes:
        verified: whether outputs were compared, and agreed.
        seconds: median of the plan's timed runs, alone in its process.
        reference_seconds: the same of the library; the rounds of the two go by turns.
    """

    verified: bool
    max_abs_error: float
    max_rel_error: float
    seconds: float
    reference_seconds: float | None
    peak_memory_bytes: int


def language_of(device: str) -> Language:
    """The kernel language of a device such as cpu, cpu:0, cuda:1 or null:0.

    Raises:
        DeviceUnavailable: there is no such kind of device.
    """
    kind = device.partition(":")[0]
    if kind not in LANGUAGES:
        known = ", ".join(LANGUAGES)
        raise DeviceUnavailable(
            device, "no such kind of device", hint=f"there are: {known}"
        )
    return LANGUAGES[kind]


def program(model: Model, plan: Plan, language: Language) -> Program:
    """The plan as the executor runs it."""
    graph, prepare = model.graph, model.prepare
    given = (*graph.weights, *prepare.weights, *prepare.inputs)
    made = set(prepare.outputs)
    steps = tuple(_step(plan, kernel, language) for kernel in plan.kernels)
    return Program(
        steps=steps,
        inputs=graph.inputs,
        outputs=graph.outputs,
        weights=tuple(dict.fromkeys(name for name in given if name not in made)),
        constants={**prepare.constants, **graph.constants},
        types={**prepare.types, **graph.types, **scratch_of(steps)},
        memory=plan.memory,
        prepare=prepare if prepare.nodes else None,
        exactness=plan.options.exactness,
    )


def scratch_of(steps: Iterable[Step]) -> dict[str, TensorType]:
    """Types of what launches of one kernel hand to each other, of all kernels."""
    sources = (step.source for step in steps if step.source is not None)
    return {n: kind for source in sources for n, kind in source.scratch.items()}


def _step(plan: Plan, kernel: PlannedKernel, language: Language) -> Step:
    source = None
    if kernel.family in GENERATED:
        source = next(s for s in kernel.sources if s.language == language)
    return Step(
        name=kernel.name, graph=extract(plan.graph, kernel.region), source=source
    )


def whole_request(
    model: Model,
    plans: Mapping[str, Plan],
    language: Language,
    *,
    seed: int = 0,
    budget_seconds: float = 5.0,
    attempts: int = 1,
    values: Mapping[str, Array] | None = None,
) -> PlanRequest:
    """Whole plans to verify and time, on seeded weights and inputs.

    Args:
        model: what the plans are plans of.
        plans: by a name of the caller's.
        language: in which the device takes its kernels.
        seed: of weights that did not come with the model, and of inputs.
        budget_seconds: for the timed samples.
        attempts: how often samples that others disturbed are taken.
        values: weights by the user's names, in place of the model's own.

    Raises:
        ModelTooLarge: its tensors do not fit into the machine.
    """
    _require_memory(model, plans.values(), language)
    imported = model.imported
    weights = {**random_weights(imported, seed), **imported.values, **(values or {})}
    programs = {name: program(model, plan, language) for name, plan in plans.items()}
    ids = _ids_of_names(model)
    feeds = tuple(
        {ids[name]: array for name, array in random_inputs(imported, s).items()}
        for s in range(seed, seed + _FEEDS)
    )
    return PlanRequest(
        programs=programs,
        weights={ids[name]: array for name, array in weights.items() if name in ids},
        feeds=tuple({n: f[n] for n in model.graph.inputs} for f in feeds),
        reference=imported.onnx,
        reference_names=_reference_names(model),
        reference_weights={n: weights[n] for n in imported.graph.weights},
        budget_seconds=budget_seconds,
        attempts=attempts,
    )


def _ids_of_names(model: Model) -> dict[str, str]:
    """Canonical tensor by the user's name, for inputs and weights."""
    tensors = (*model.graph.inputs, *model.graph.weights, *model.prepare.weights)
    tensors = (*tensors, *model.prepare.inputs)
    return {name: t for t in tensors for name in model.names.get(t, ())}


def _reference_names(model: Model) -> dict[str, str]:
    graph = model.graph
    outputs = zip(graph.outputs, model.imported.graph.outputs, strict=True)
    inputs = {t: model.names[t][0] for t in graph.inputs}
    return {**inputs, **dict(outputs)}


def run_plan(
    model: Model,
    plan: Plan,
    *,
    device: str = "cpu",
    seed: int = 0,
    verify: bool = True,
    values: Mapping[str, Array] | None = None,
    sample_seconds: float = _RUN_SAMPLE_SECONDS,
) -> RunReport:
    """Run a whole plan in a child process and compare it with ONNX Runtime.

    Args:
        model: what the plan is a plan of.
        plan: the plan.
        device: where it runs.
        seed: of weights that did not come with the model, and of inputs.
        verify: whether outputs are compared.
        values: weights by the user's names, in place of the model's own.
        sample_seconds: for the timed samples of both, in all rounds together.

    Raises:
        DeviceUnavailable: the device is not there.
        ModelTooLarge: its tensors do not fit into the machine.
        UnsupportedModel: the library cannot run the model, or its results are random
            and were to be verified.
        VerificationFailed: the outputs differ, or the plan could not be run.
    """
    if verify:
        _require_one_result(model)
    request = whole_request(
        model,
        {"plan": plan},
        language_of(device),
        seed=seed,
        budget_seconds=sample_seconds / _ROUNDS,
        values=values,
    )
    request = replace(request, rounds=_ROUNDS)
    with Runner(device) as runner:
        result = runner.measure_whole(
            request if verify else replace(request, reference=None)
        )
        timed = result.measurements["plan"]
        if timed.failure:
            reference = result.measurements.get("reference")
            _blame(timed, reference or runner.measure_reference(request))
    return _report(plan, result)


def _blame(timed: Measurement, reference: Measurement) -> NoReturn:
    """Raise what a failed run means: the model's fault where the library fails too."""
    if "allocate memory" in reference.message or reference.failure == "resources":
        raise ModelTooLarge("model", reference.message, hint="take smaller sizes")
    if reference.failure == "runtime":
        raise UnsupportedModel(
            "model",
            "ONNX Runtime cannot run it: "
            + reference.message.removeprefix("library: "),
            hint="plan it without running it, or take another type or operator",
        )
    raise VerificationFailed(
        "plan",
        f"{timed.failure}: {timed.message}",
        hint="run with another seed, and report the model if it fails again",
    )


def _require_memory(model: Model, plans: Iterable[Plan], language: Language) -> None:
    """Refuse what does not fit, before arrays are made."""
    graph = model.imported.graph
    inputs, rest = (
        sum(graph.types[name].bytes for name in names)
        for names in (graph.inputs, (*graph.weights, *graph.outputs))
    )
    needed = [_FEEDS * inputs + rest]
    if language == "opencl":
        needed += [plan.memory.peak_bytes for plan in plans]
    there = memory_bytes()
    if max(needed) > there:
        largest = max(graph.types, key=lambda name: graph.types[name].bytes)
        raise ModelTooLarge(
            largest,
            f"a run needs {max(needed)} bytes, this machine has {there}",
            hint="take smaller sizes: this is the largest tensor",
        )


def memory_bytes() -> int:
    """Main memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _require_one_result(model: Model) -> None:
    """Refuse to verify what gives other numbers every time."""
    for graph in (model.graph, model.prepare):
        for node in graph.nodes:
            operator = random_operator(node)
            if operator:
                raise UnsupportedModel(
                    next(iter(model.names.get(node.name, ())), node.name),
                    f"{operator} gives other numbers at every run, so that there is "
                    "nothing to verify",
                    hint="run it without --verify",
                )


def _report(plan: Plan, result: PlanResult) -> RunReport:
    timed = result.measurements["plan"]
    reference = result.measurements.get("reference")
    usable = reference is not None and not reference.failure
    return RunReport(
        verified=result.verified,
        max_abs_error=timed.max_abs_error,
        max_rel_error=timed.max_rel_error,
        seconds=timed.seconds,
        reference_seconds=reference.seconds if reference and usable else None,
        peak_memory_bytes=plan.memory.peak_bytes,
    )
