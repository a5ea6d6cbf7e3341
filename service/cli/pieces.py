"""Piecewise plans on the command line: made, kept on this machine, and looked up."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from service.cli import inputs, output
from service.cli.exits import BadArgument
from service.dashboard.formats import clock, percent
from service.jobs import bucketing
from service.jobs.planning import Planner, Prepared, Question
from service.jobs.registered import registered
from tuner import document
from tuner.errors import TunerError
from tuner.keys import plan_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cost_model.device import Device
    from service.jobs.bucketing import Piecewise, Range

MOST_BYTES: Final = 1 << 28
"""A kept piecewise plan that is larger is left alone."""


@dataclass(frozen=True, slots=True)
class Ranged:
    """What the command line asks for.

    Attributes:
        fixed: words of `--shape` with one size.
        ranges: dimensions with a range.
        given: the options object.
    """

    model: Path
    target: str
    fixed: Sequence[str]
    ranges: Mapping[str, Range]
    given: Mapping[str, Any]
    rules: Sequence[Path]


def plan(ranged: Ranged, *, time_limit_seconds: float | None = None) -> Piecewise:
    """Plan for ranges of sizes, and keep the result for later lookups."""
    sizes = inputs.sizes(ranged.fixed)
    options = inputs.with_sizes(ranged.given, sizes)
    device = inputs.device_of(ranged.target)
    base = ranged.target
    if inputs.is_own(base):
        base = inputs.stand_in(base, device)
    rules = registered(inputs.settings().rules, ranged.rules)
    reader = Planner(plan_seconds=time_limit_seconds, rules=rules)
    question = Question(data=b"", form="json", target=base, options=options)
    reader.options(question)  # what is wrong with them is told before a file is read
    data = inputs.model_bytes(ranged.model)
    question = replace(question, data=data, form=inputs.form_of(data))
    asked = bucketing.Asked(question=question, ranges=ranged.ranges)
    with inputs.named(ranged.model):
        found = bucketing.plan_pieces(
            asked, reader, device, time_limit_seconds=time_limit_seconds
        )
    _keep(_folder(question, reader, device), found, sizes)
    return found


def in_names(found: Piecewise) -> dict[str, Any]:
    """The piecewise plan with its plans in the model's own names."""
    told = found.as_json
    buckets = [
        {**bucket, "plan": document.joined(bucket["plan"], names)}
        for bucket, names in zip(told["buckets"], found.names_of, strict=True)
    ]
    return {**told, "buckets": buckets}


def show(found: Piecewise, *, groups: bool) -> None:
    """Print the buckets, one a line."""
    told = found.as_json
    state = "every bucket keeps it" if told["complete"] else "not kept everywhere"
    output.line(f"plan         {told['plan_key']}")
    output.line(f"target       {told['target']['id']}")
    output.line(f"margin       {percent(told['margin'])}, {state}")
    output.line(
        f"points       {told['points_solved']} solved in {clock(found.seconds)}"
    )
    for name, points in told["breakpoints"].items():
        words = ", ".join(map(str, points)) or "none"
        output.line(f"breakpoints  {name}: {words}")
    for bucket, names in zip(told["buckets"], found.names_of, strict=True):
        loss = bucket["largest_loss"]
        output.line(
            f"{_words(bucket['ranges'])}: {bucket['kernels']} kernels,"
            f" largest loss {'unknown' if loss is None else percent(loss)}"
        )
        if groups:
            for kernel in document.joined(bucket["plan"], names)["kernels"]:
                output.line(f"  {kernel['name']}: {', '.join(kernel['nodes'])}")


def _words(ranges: Mapping[str, Sequence[int]]) -> str:
    parts = (
        f"{name}={low}" if low == high else f"{name}={low}..{high}"
        for name, (low, high) in ranges.items()
    )
    return ",".join(parts)


def _folder(question: Question, reader: Planner, device: Device) -> Path:
    """Where plans of this model, target and these options are, whatever the sizes."""
    options = {k: v for k, v in question.options.items() if k != "shapes"}
    bare = replace(question, options=options)
    fingerprint, _ = bucketing.symbolic(bare, reader)
    key = plan_key(fingerprint, device, reader.options(bare)).key
    return inputs.settings().cache_home / "fuseplan" / "pieces" / key


def _keep(folder: Path, found: Piecewise, sizes: Mapping[str, int]) -> None:
    """Write a piecewise plan; without a place for it only later lookups miss it."""
    told = document.encode({**found.as_json, "timing": {}, "fixed": dict(sizes)})
    try:
        folder.mkdir(parents=True, exist_ok=True)
        inputs.write_bytes(folder / f"{found.key.key}.json", told)
    except (OSError, BadArgument) as error:
        output.note(f"fuseplan: lookups will not find this plan: {error}")


def find(
    model: Path,
    prepared: Prepared,
    given: Mapping[str, Any],
    rules: Sequence[Path],
) -> dict[str, Any] | None:
    """The bucket of a model at some sizes, from the piecewise plans that were kept.

    Args:
        model: its file; standard input was read already, and has no buckets.
        prepared: the model at these sizes.
        given: the options object of the lookup.
        rules: files of `--rules`.
    """
    if str(model) == "-":
        return None
    data = inputs.model_bytes(model)
    question = Question(
        data=data,
        form=inputs.form_of(data),
        target=prepared.device.id,
        options=given,
    )
    known = registered(inputs.settings().rules, rules)
    try:
        reader = Planner(plan_seconds=1.0, rules=known)
        folder = _folder(question, reader, prepared.device)
    except TunerError:
        return None
    sizes = prepared.model.imported.dims
    holding = list(_holding(folder, sizes))
    for bucket in holding:
        if bucketing.same_graph(bucket["plan"], prepared.model.graph):
            return _shown(bucket, prepared)
    for bucket in holding[:1]:
        output.note(
            f"fuseplan: at these sizes the model has other operators than where"
            f" {_words(bucket['ranges'])} was planned; planning for them alone"
        )
    return None


def _holding(folder: Path, sizes: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    """The buckets of a folder's plans in whose ranges the sizes lie."""
    for told in _kept(folder):
        if any(sizes.get(name) != size for name, size in told["fixed"].items()):
            continue
        for bucket in told["buckets"]:
            ranges: Mapping[str, Sequence[int]] = bucket["ranges"]
            if all(a <= sizes.get(name, 0) <= b for name, (a, b) in ranges.items()):
                yield bucket


def _shown(bucket: Mapping[str, Any], prepared: Prepared) -> dict[str, Any]:
    kept = ("ranges", "planned_at", "largest_loss")
    return {
        "source": "bucket",
        "plan_key": bucket["plan_key"],
        "digest": bucket["digest"],
        **document.joined(bucket["plan"], prepared.model.names),
        "bucket": {key: bucket[key] for key in kept},
        "timing": {},
    }


def _kept(folder: Path) -> Iterator[dict[str, Any]]:
    """Piecewise plans of a folder; what cannot be read is passed over."""
    for file in sorted(folder.glob("*.json")):
        try:
            if file.stat().st_size > MOST_BYTES:
                continue
            told = json.loads(file.read_bytes())
        except (OSError, ValueError):
            continue
        if isinstance(told, dict) and told.get("schema") == bucketing.SCHEMA:
            yield told
