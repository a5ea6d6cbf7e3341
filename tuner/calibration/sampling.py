"""What an accuracy run measures, and in which order.

The families of kernels take turns; each gives its pairs and its kernels side by side,
shuffled by a seed, so that a run that ends early has seen all of them.
"""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING, TypeVar

from tuner.calibration.corpus import FusionPair, Sample, fusion_pairs, samples
from tuner.kernel.lower import lower
from tuner.kernel.schedule import space

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cost_model.device import Device
    from tuner.calibration.findings import Limits
    from tuner.plan import Family, Schedule

_Subject = TypeVar("_Subject")


def label_of(subject: Sample | FusionPair) -> str:
    """What a kernel, or a pair, is called in records."""
    if isinstance(subject, Sample):
        return f"{subject.name}{list(subject.shape)}"
    return subject.name


def subjects(limits: Limits) -> Mapping[str, Sample | FusionPair]:
    """Kernels and pairs: the families take turns, each with a seeded order of its own.

    A family's pairs and kernels stand side by side, the first pair before the first
    kernel.
    """
    rng = random.Random(limits.seed)  # noqa: S311 - a seeded sample
    kernels = _shuffled(samples(), rng, limits.kernels)
    pairs = _shuffled(tuple(fusion_pairs()), rng, limits.pairs)
    placed: dict[Family, list[tuple[float, Sample | FusionPair]]] = {}
    parts: tuple[tuple[float, Sequence[Sample | FusionPair]], ...] = (
        (0.0, pairs),
        (0.5, kernels),
    )
    for first, part in parts:
        for family, group in _by_family(part).items():
            mine = placed.setdefault(family, [])
            mine += [((n + first) / len(group), one) for n, one in enumerate(group)]
    for mine in placed.values():
        mine.sort(key=lambda each: each[0])
    turns = itertools.chain.from_iterable(itertools.zip_longest(*placed.values()))
    order = [each[1] for each in turns if each is not None]
    return {label_of(subject): subject for subject in order}


def drawn(sample: Sample, device: Device, limits: Limits) -> tuple[Schedule, ...]:
    """The default and some others, whatever was drawn for other kernels."""
    rng = random.Random(f"{limits.seed}/{label_of(sample)}")  # noqa: S311
    first, *others = space(lower(sample.graph), device)
    return (first, *rng.sample(others, min(limits.schedules - 1, len(others))))


def _by_family(
    part: Sequence[Sample | FusionPair],
) -> dict[Family, list[Sample | FusionPair]]:
    found: dict[Family, list[Sample | FusionPair]] = {}
    for subject in part:
        graph = subject.graph if isinstance(subject, Sample) else subject.whole
        found.setdefault(lower(graph).family, []).append(subject)
    return found


def _shuffled(
    items: Sequence[_Subject], rng: random.Random, most: int | None
) -> list[_Subject]:
    order = list(items)
    rng.shuffle(order)
    return order[:most]
