"""Writes what recorded kernels teach about the schedules of others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.search_quality.recorded import (
    is_whole,
    lesson_of,
    recorded_kernel,
    repriced,
    target_of,
)
from benchmarks.search_quality.saying import say
from tuner.search import experience
from tuner.search.experience import Experience, Lesson
from tuner.search.quality import spaces_from

if TYPE_CHECKING:
    import argparse

EXPERIENCE: Final = Path(experience.__file__).with_name(experience.FILE)


def learn(given: argparse.Namespace) -> None:
    """Write what recorded kernels teach, under the prices of this version."""
    lessons: dict[str, list[Lesson]] = {}
    for path in given.recordings:
        stored = json.loads(path.read_text())
        device = target_of(stored)
        for each in spaces_from(stored):
            kernel = recorded_kernel(each, device)
            if kernel is not None and is_whole(each, stored["sizes"]):
                lesson = lesson_of(repriced(each, device, kernel), kernel)
                lessons.setdefault(device.kind, []).append(lesson)
            else:
                say(f"{path}: {each.name} is left out: not complete, or of other code")
    known = experience.read(given.out.read_text()) if given.out.exists() else {}
    known |= {kind: Experience.learned(found) for kind, found in lessons.items()}
    given.out.write_text(experience.write(known))
    for kind, found in lessons.items():
        say(f"{given.out}: {kind} learned from {len(found)} recorded spaces")
