"""The door to the tuner's session: from its JSON to what the store keeps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cost_model.device import base_of
from service.jobs.planning import Planner, Question, as_revision
from service.store.events import EventDraft
from service.store.jobs import JobRequest
from service.store.kernels import StoredKernel
from service.store.measurements import StoredMeasurement
from service.store.values import PlanRevision, Progress
from tuner.errors import VerificationFailed
from tuner.runtime.requests import Measures
from tuner.search.budget import Budget
from tuner.search.session import TuningSession

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """One job's tuning session."""

    job: JobRequest
    session: TuningSession

    def propose(self) -> Json | None:
        """The next batch of measurements; None when the session is over."""
        return self.session.propose()

    def measure(self, batch: Json, runner: Measures) -> list[Json]:
        """Run a batch on the worker's device."""
        return self.session.measure(batch, runner)

    def observe(self, batch: Json, results: list[Json]) -> tuple[EventDraft, ...]:
        """Take in a batch's results; gives the events that they caused."""
        return tuple(
            EventDraft(
                type=str(event["type"]),
                data={key: _finite(v) for key, v in event.items() if key != "type"},
            )
            for event in self.session.observe(batch, results)
        )

    def progress(self) -> Progress:
        """How far the session is."""
        told = {key: _finite(value) for key, value in self.session.progress().items()}
        return Progress(
            trials=told["trials"],
            best_seconds=told["best_seconds"],
            gap=told["gap"],
            remaining_seconds=told["remaining_seconds"],
        )

    @property
    def keeps_incumbent(self) -> bool:
        """Whether the plan that was stored before is still the best."""
        return self.session.winner == "incumbent"

    @property
    def partial_reason(self) -> str:
        """Why the result may be less than the budget allowed; empty when it is not."""
        return self.session.partial_reason

    def revision(self) -> PlanRevision | None:
        """The measured plan, ready to be stored; None when nothing whole was run.

        Raises:
            VerificationFailed: the plan computes something else than the model.
        """
        plan = self.session.plan()
        whole = plan.whole.get("plan")
        if whole is not None and whole.failure == "correctness":
            raise VerificationFailed(
                f"plan of {self.job.title or self.job.plan_key}",
                whole.message,
                hint="this is a fault of fuseplan: please report the model",
            )
        if whole is None or whole.failure or str(plan.evidence) != "measured":
            return None
        return as_revision(plan, self.session.key, job=self.job.id)


def open_tuning(
    planner: Planner,
    job: JobRequest,
    model: bytes,
    known: Mapping[str, Mapping[str, Any]],
    incumbent: Mapping[str, Any] | None = None,
    elsewhere: Iterable[tuple[str, Mapping[str, Any]]] = (),
    numbers: Mapping[str, Any] | None = None,
) -> Tuning:
    """A session for a job; equal arguments give equal sessions.

    Args:
        planner: how questions are read here.
        job: what to tune.
        model: bytes of the submitted model.
        known: what was measured before, by measurement key.
        incumbent: body of the measured plan that is stored, if there is one; only a
            plan that is surely faster replaces it.
        elsewhere: runs on other devices, with the device's id; hints, never answers.
        numbers: of the device, where the job's target is a calibration's.
    """
    question = Question(
        data=model,
        form=job.input_form,
        target=job.target,
        options=job.options,
        numbers=numbers,
    )
    prepared = planner.prepare(question)
    session = TuningSession(
        prepared.model,
        prepared.device,
        prepared.options,
        Budget(seconds=job.budget_seconds, trials=job.budget_trials),
        known,
        incumbent=incumbent,
        cache=job.cache,
        partitions=job.partitions,
        elsewhere=elsewhere,
    )
    return Tuning(job=job, session=session)


def stored_kernels(events: tuple[EventDraft, ...]) -> tuple[StoredKernel, ...]:
    """The kernels that a batch measured."""
    return tuple(
        StoredKernel(fingerprint=event.data["kernel"], family=event.data["family"])
        for event in events
        if event.type == "trial"
    )


def stored_measurements(
    job: JobRequest, batch: Json, results: list[Json]
) -> tuple[StoredMeasurement, ...]:
    """A batch's results as the store keeps them."""
    found: list[StoredMeasurement] = []
    for item, result in zip(batch["items"], results, strict=True):
        if item["kind"] == "kernel":
            found.append(_measurement(job, item["key"], result, item))
            continue
        found.extend(
            _measurement(job, f"{job.plan_key}/{label}", record, {})
            for label, record in result.get("whole", {}).items()
        )
    return tuple(found)


def _measurement(
    job: JobRequest, subject: str, record: Json, item: Json
) -> StoredMeasurement:
    return StoredMeasurement.of(
        record,
        job=job.id,
        subject=subject,
        device=base_of(job.target),
        kernel=item.get("kernel"),
        schedule=item.get("schedule"),
    )


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value
