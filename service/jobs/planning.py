"""The only door from the service to the planner and the tuning session."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, Protocol

from cost_model.calibration import restore
from cost_model.device import Device, base_of
from service.jobs.options import read_options
from service.store.values import Blob, PlanIdentity, PlanRevision, Progress
from tuner import document, pipeline
from tuner.errors import InvalidModel, InvalidOption
from tuner.fusion.effort import STEPS
from tuner.ir.custom import RuleSet
from tuner.keys import PlanKey
from tuner.plan import Options, Pin, Plan
from tuner.runtime import cuda

Form = Literal["onnx", "json"]

_DEVICE: Final = re.compile(r"(cpu|cuda|null)(?::([0-9]{1,4}))?")
"""What a worker measures on: all cores, one core, a GPU, or times that are made up."""

SOURCE_TYPES: Final[Mapping[str, str]] = {
    "opencl": "text/x-opencl; charset=utf-8",
    "cuda": "text/x-cuda; charset=utf-8",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a plan is asked for.

    Attributes:
        data: the model, as handed in.
        target: id or alias of the catalogue, or that of a calibration.
        options: options as the request gives them.
        numbers: of the device, where the target is a calibration's.
    """

    data: bytes
    form: Form
    target: str
    options: Mapping[str, Any]
    numbers: Mapping[str, Any] | None = None

    @property
    def base(self) -> Device:
        """The catalogue's device, whose rules and options hold.

        Raises:
            UnknownTarget: there is no such device.
        """
        return pipeline.resolve_target(base_of(self.target))

    @property
    def device(self) -> Device:
        """The device whose numbers price a plan.

        Raises:
            UnknownTarget: there is no such device.
        """
        if self.numbers is None:
            return pipeline.resolve_target(self.target)
        return restore(self.base, self.numbers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """What a service needs to know of a question that was understood.

    Attributes:
        names: canonical id -> the names in the model that was handed in.
        nodes, tensors: size of the canonical graph.
    """

    identity: PlanIdentity
    names: Mapping[str, list[str]]
    nodes: int
    tensors: int

    @property
    def key(self) -> str:
        """The plan key."""
        return self.identity.key


class Planning(Protocol):
    """Answers questions: here, or in a process that may die of them."""

    def outline(self, question: Question) -> Outline:
        """Read a model and find its key.

        Raises:
            TunerError: the model, target or an option is refused.
            ModelNotReadable: reading it does too much harm.
        """

    def plan(self, question: Question) -> PlanRevision:
        """The plan that the cost model alone gives, ready to be stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A question that was understood: model read, dimensions bound, key known."""

    model: pipeline.Model
    options: Options
    device: Device
    key: PlanKey

    @property
    def names(self) -> dict[str, list[str]]:
        """Canonical id -> the names in the model that was handed in."""
        return {id_: list(names) for id_, names in self.model.names.items()}

    @property
    def outline(self) -> Outline:
        """What a service needs to know of it."""
        return Outline(
            identity=self.identity,
            names=self.names,
            nodes=len(self.model.graph.nodes),
            tensors=len(self.model.graph.types),
        )

    @property
    def identity(self) -> PlanIdentity:
        """What the store remembers of the key."""
        return PlanIdentity(
            key=self.key.key,
            graph_hash=self.model.fingerprint,
            target=self.device.id,
            parts=self.key.parts,
            options=document.options_json(self.options),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Planner:
    """Plans questions with the limits of this service.

    Attributes:
        plan_seconds: time limit of the partition solver, beside the work that one plan
            may take; None where work alone is counted.
        rules: operators and fusion rules of whoever runs this.
    """

    plan_seconds: float | None = None
    rules: RuleSet = field(default_factory=RuleSet)

    def prepare(self, question: Question) -> Prepared:
        """Read a model and find its key; needs no device and no compiler.

        Raises:
            TunerError: the model, target or an option is refused.
        """
        device = question.device
        options = self.options(question)
        model = _load(question, options)
        pins = tuple(
            Pin(fuse=pin.fuse, nodes=model.ends(*pin.nodes)) for pin in options.pins
        )
        options = replace(options, pins=pins)
        return Prepared(
            model=model,
            options=options,
            device=device,
            key=pipeline.plan_key(model, device, options),
        )

    def options(self, question: Question) -> Options:
        """The options of a question with the rules; pins still name nodes.

        Raises:
            UnknownTarget: there is no such device.
            InvalidOption: an option is refused.
        """
        target = question.base.id
        return replace(read_options(question.options, target), rules=self.rules)

    def outline(self, question: Question) -> Outline:
        """Read a model and find its key; see `Planning`."""
        return self.prepare(question).outline

    def plan(self, question: Question) -> PlanRevision:
        """The analytic plan of a question; see `Planning`."""
        return self.analytic(self.prepare(question))

    def analytic(self, prepared: Prepared) -> PlanRevision:
        """The plan that the cost model alone gives, ready to be stored."""
        plan = pipeline.make_plan(
            prepared.model,
            prepared.device,
            prepared.options,
            time_limit_seconds=self.plan_seconds,
            steps=STEPS,
        )
        return as_revision(plan, prepared.key)


def _load(question: Question, options: Options) -> pipeline.Model:
    """Read a model; a value that no model can hold is the model's fault."""
    try:
        return pipeline.load(
            question.data,
            question.form,
            shapes=options.shapes,
            training=options.mode == "training",
            rules=options.rules,
        )
    except (OverflowError, ValueError) as error:
        raise InvalidModel(
            "model",
            f"it holds a value that no model can hold: {error}",
            hint="look for text that is not UTF-8 and for numbers beyond 64 bits",
        ) from error


def queue_of(device: Device) -> str:
    """The queue on which jobs for a target wait.

    Raises:
        InvalidOption: nothing can be measured on this target.
    """
    if device.kind == "cpu":
        return "tune.cpu"
    if device.kind == "gpu":
        return f"tune.cuda.{device.architecture}"
    raise InvalidOption(
        "mode",
        f"target {device.id} is no real device and cannot be measured",
        hint="ask with mode analytic, or choose another target",
    )


def target_of(device: str) -> Device:
    """The catalogue's device that a worker's device string belongs to.

    Raises:
        InvalidOption: no device of a machine has such a name.
        DeviceUnavailable: it is a GPU that is not there.
    """
    found = _DEVICE.fullmatch(device)
    if found is None:
        raise InvalidOption(
            f"device {device!r}",
            "no device of a machine is called so",
            hint="cpu, cpu:0 (one core) or cuda:0; `fuseplan devices` shows what is"
            " here, and --target names what a plan is for",
        )
    if found[1] == "cuda":
        return pipeline.resolve_target(cuda.architecture(int(found[2] or "0")))
    # The null device answers for the processor, with times that it makes up.
    return pipeline.resolve_target("cpu")


def as_revision(plan: Plan, key: PlanKey, *, job: str | None = None) -> PlanRevision:
    """A plan as the store keeps it: canonical bytes and everything that they name."""
    body = document.body(plan, target=dict(key.target), toolchain=dict(key.toolchain))
    whole = plan.whole.get("plan")
    objective = plan.partition.objective_seconds
    sources = {
        source.digest: Blob.of(source.text.encode(), SOURCE_TYPES[source.language])
        for kernel in plan.kernels
        for source in kernel.sources
    }
    return PlanRevision(
        evidence=_evidence(plan),
        body=document.encode(body),
        seconds=objective if whole is None else whole.seconds,
        objective_seconds=objective,
        bound_seconds=plan.partition.bound_seconds,
        kernels=len(plan.kernels),
        contended=whole is not None and whole.contended,
        blobs=tuple(sources.values()),
        job=job,
    )


def first_progress(revision: PlanRevision) -> Progress:
    """Progress of a job that has only an analytic plan."""
    missing = revision.objective_seconds - revision.bound_seconds
    whole = revision.objective_seconds
    return Progress(
        best_seconds=revision.seconds,
        gap=max(0.0, missing / whole) if whole > 0 else 0.0,
        kernels=revision.kernels,
    )


def _evidence(plan: Plan) -> Literal["analytic", "compiled", "measured"]:
    text = str(plan.evidence)
    if text == "measured":
        return "measured"
    return "compiled" if text == "compiled" else "analytic"
