"""An answer of the API to "why are these fused, or not?", in a person's words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from service.dashboard.formats import count, duration, percent, size

Json = Mapping[str, Any]
Names = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """One of the two nodes."""

    id: str
    name: str
    op: str
    kernels: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """One thing that the other choice would change, and by how much.

    Attributes:
        is_worse: whether the plan would be the worse for it.
    """

    label: str
    value: str
    is_worse: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """The whole explanation.

    Attributes:
        question: what was asked, as a sentence.
        choice: what the plan does.
        other: what it could do instead.
        rest: further facts of the answer, by name.
    """

    a: End
    b: End
    question: str
    fused: bool
    reason: str
    tensors: tuple[tuple[str, str], ...]
    other: str
    prices: tuple[Price, ...]
    summary: str
    rest: tuple[tuple[str, str], ...]


_SAME = 1e-6
"""Times that differ by less, as a part, are told as equal."""

_KNOWN = frozenset({"a", "b", "fused", "reason", "tensors", "other"})


def explanation(plan: Json, answer: Json, names: Names) -> Told:
    """The answer with the user's names, and its price as a part of the whole."""
    a, b = (_end(answer[side], names) for side in ("a", "b"))
    fused = bool(answer["fused"])
    other = answer.get("other") or {}
    return Told(
        a=a,
        b=b,
        question=f"Why are these two {'' if fused else 'not '}fused?",
        fused=fused,
        reason=_named(str(answer["reason"]), _told(answer), names),
        tensors=tuple(
            (_name(tensor["id"], names), size(tensor["bytes"]))
            for tensor in answer["tensors"]
        ),
        other=str(other.get("choice", "")),
        prices=_prices(other),
        summary=_summary(plan, other),
        rest=tuple(
            (name.replace("_", " "), str(value))
            for name, value in answer.items()
            if name not in _KNOWN and isinstance(value, (str, int, float)) and value
        ),
    )


def solved(answer: Json) -> str:
    """What a second solution of the problem says, as a sentence."""
    choice = "Apart" if answer["fused"] else "In one kernel"
    other = answer["other_objective_seconds"]
    if other is None:
        return f"Solved: no plan has the other choice: {answer['reason']}."
    more = other - answer["objective_seconds"]
    if abs(more) <= _SAME * answer["objective_seconds"]:
        return (
            f"Solved: {choice.lower()}, the best plan takes as long: {duration(other)};"
            f" {answer['reason']}."
        )
    return (
        f"Solved: {choice.lower()}, the best plan takes {duration(other)}, "
        f"{duration(abs(more))} {'more' if more > 0 else 'less'}"
        f" ({percent(abs(more) / answer['objective_seconds'])}); {answer['reason']}."
    )


def _end(node: Json, names: Names) -> End:
    return End(
        id=node["id"],
        name=_name(node["id"], names),
        op=node["op"],
        kernels=tuple(node["kernels"]),
    )


def _name(id_: str, names: Names) -> str:
    return next(iter(names.get(id_, ())), id_)


def _told(answer: Json) -> set[str]:
    """Ids that the reason may speak of: those of the nodes and of tensors between."""
    return {one["id"] for one in (answer["a"], answer["b"], *answer["tensors"])}


def _named(reason: str, ids: Set[str], names: Names) -> str:
    """The reason with the user's names in it, as the beginning of a sentence."""
    is_name = reason.partition(" ")[0].rstrip(",") in ids
    for id_ in ids:
        reason = re.sub(
            rf"\b{re.escape(id_)}\b", _name(id_, names).replace(chr(92), r"\\"), reason
        )
    return reason if is_name else reason[:1].upper() + reason[1:]


def _prices(other: Json) -> tuple[Price, ...]:
    rows = (
        ("Time", other.get("extra_seconds"), duration),
        ("Bytes moved", other.get("extra_bytes"), size),
        ("Launches", other.get("extra_launches"), count),
    )
    return tuple(
        Price(label=label, value=_signed(value, shown), is_worse=value > 0)
        for label, value, shown in rows
        if value
    )


def _signed(value: float, shown: Any) -> str:
    return f"{'+' if value > 0 else chr(0x2212)}{shown(abs(value))}"


def _summary(plan: Json, other: Json) -> str:
    """The price in one sentence."""
    seconds = other.get("extra_seconds")
    if not other or seconds is None:
        return ""
    whole = plan["objective_seconds"]
    part = f", {percent(abs(seconds) / whole)} of the plan" if whole else ""
    choice = str(other["choice"]).capitalize()
    if seconds > 0:
        return f"{choice} would cost at least {duration(seconds)}{part}."
    return (
        f"{choice} would save at most {duration(-seconds)}{part},"
        " before what holding both in one kernel costs."
    )
