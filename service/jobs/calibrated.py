"""Targets with the numbers of a stored calibration: `cpu@1a2b3c4d`, `cpu@latest`.

Plain `cpu` is always the catalogue's row, on every machine. A calibrated device has
another digest, hence other plan keys, so it is asked for by name: the id, `@`, and the
first digits of its digest, or `latest` for the newest one in this database.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from sqlalchemy.orm import Session

from cost_model.calibration import restore
from cost_model.device import Device, base_of
from service.jobs.planning import Question
from service.store.devices import Calibration, calibrations
from tuner import pipeline
from tuner.errors import UnknownTarget

LATEST: Final = "latest"


def is_calibrated(target: str) -> bool:
    """Whether a target's name asks for a calibration."""
    return "@" in target


def settled(session: Session, question: Question) -> Question:
    """A question with the numbers that its target's name stands for.

    `latest` becomes the digest of what is the newest now.

    Args:
        session: where calibrations are.
        question: whose target is a calibration's.

    Raises:
        UnknownTarget: there is no such device, or no such calibration of it.
    """
    device = stored(session, question.target)
    return replace(question, target=device.id, numbers=dict(device.numbers))


def stored(session: Session, target: str) -> Device:
    """The calibrated device of this name, as the database has it.

    Raises:
        UnknownTarget: there is no such device, or no such calibration of it.
    """
    base = pipeline.resolve_target(base_of(target)).id
    return find(target, calibrations(session, base))


def find(target: str, known: Sequence[Calibration]) -> Device:
    """The calibrated device of this name.

    Args:
        target: such as `cpu@1a2b3c4d` or `cpu@latest`.
        known: calibrations of the base device, newest first.

    Raises:
        UnknownTarget: there is no such device, or no such calibration of it.
    """
    base = pipeline.resolve_target(base_of(target))
    wanted = target.partition("@")[2].lower()
    for each in known:
        device = restore(base, each.numbers.get("device", {}))
        # A release that knows one number more has another digest for the same ones.
        digests = (device.digest, each.digest)
        if wanted == LATEST or (wanted and any(d.startswith(wanted) for d in digests)):
            return device
    there = ", ".join(f"{base.id}@{each.digest[:8]}" for each in known)
    raise UnknownTarget(
        target,
        "this database has no such calibration",
        hint=f"there are: {there}" if there else "make one with `fuseplan calibrate`",
    )
