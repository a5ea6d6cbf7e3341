"""From drafts to a graph: dead work out, names, origins."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from tuner.frontend.builder import Builder, Draft, Ref
from tuner.ir.graph import Graph, Node
from tuner.ir.types import Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the graph shall hold.

    Attributes:
        users: names of the user's nodes, by position.
        labels: the user's names of tensors.
        inputs: run-time inputs, in order.
        weights: tensors that may become weights.
        outputs: name, tensor and user's node of each result.
    """

    users: Sequence[str]
    labels: Mapping[Ref, str]
    inputs: Sequence[Ref]
    weights: Collection[Ref]
    outputs: Sequence[tuple[str, Ref, int]]


def assemble(b: Builder, plan: Plan) -> Graph:
    """Make the graph of everything that the outputs need."""
    labels = dict(plan.labels)
    results = _deliver(b, plan, labels)
    live = _live(b.drafts, results)
    names = _name_nodes(live, plan.users, labels)
    order = _sources_in_use(live, results)
    constants: dict[str, Array] = {}
    taken = set(labels.values())
    count = 0
    for ref in order:
        value = b.values[ref]
        if value is None:
            continue
        if ref not in labels:
            while f"constant/{count}" in taken:
                count += 1
            labels[ref] = f"constant/{count}"
            count += 1
        constants[labels[ref]] = value
    weights = [ref for ref in order if ref in plan.weights]
    nodes = _nodes(live, names, labels, plan.users)
    used = dict.fromkeys(
        (*plan.inputs, *order, *(ref for d in live for ref in d.outputs))
    )
    return Graph(
        nodes=nodes,
        inputs=tuple(labels[ref] for ref in plan.inputs),
        weights=tuple(labels[ref] for ref in weights),
        constants=MappingProxyType(constants),
        outputs=tuple(name for name, _, _ in plan.outputs),
        types=MappingProxyType({labels[ref]: b.types[ref] for ref in used}),
    )


def _deliver(b: Builder, plan: Plan, labels: dict[Ref, str]) -> list[Ref]:
    """Give each result its own name; a second name of a tensor is a view of it."""
    results: list[Ref] = []
    for name, ref, user in plan.outputs:
        if b.makers[ref] is None and labels.get(ref) == name:
            if b.values[ref] is None:  # an input that is handed on as it is
                results.append(ref)
                continue
            del labels[ref]
        if b.makers[ref] is None or labels.get(ref, name) != name or ref in results:
            view = b.source(b.types[ref])
            b.drafts.append(
                Draft(
                    op="reshape",
                    inputs=(ref,),
                    outputs=(view,),
                    attributes={"shape": b.shape(ref)},
                    user=user,
                )
            )
            ref = view  # noqa: PLW2901
        labels[ref] = name
        results.append(ref)
    return results


def _live(drafts: Sequence[Draft], results: Sequence[Ref]) -> list[Draft]:
    wanted = set(results)
    live: list[Draft] = []
    for draft in reversed(drafts):
        if any(ref in wanted for ref in draft.outputs):
            wanted.update(draft.inputs)
            live.append(draft)
    live.reverse()
    return live


def _sources_in_use(live: Sequence[Draft], results: Sequence[Ref]) -> list[Ref]:
    made = {ref for draft in live for ref in draft.outputs}
    reads = dict.fromkeys(ref for draft in live for ref in draft.inputs)
    reads.update(dict.fromkeys(results))  # a weight that is handed on as it is
    return [ref for ref in reads if ref not in made]


def _name_nodes(
    live: Sequence[Draft], users: Sequence[str], labels: dict[Ref, str]
) -> list[str]:
    """Names of the primitives, and of the tensors that the user does not know."""
    parts: dict[int, list[Draft]] = {}
    for draft in live:
        parts.setdefault(draft.user, []).append(draft)
    own_nodes, own_tensors = set(users), set(labels.values())
    counts: dict[int, int] = {}
    names: list[str] = []
    for draft in live:
        user = users[draft.user] if draft.user >= 0 else "model"
        alone = len(parts[draft.user]) == 1 and draft.user >= 0
        number = counts.get(draft.user, 0)
        while not alone and f"{user}/{number}" in own_nodes:
            number += 1
        counts[draft.user] = number + 1
        names.append(user if alone else f"{user}/{number}")
        for position, ref in enumerate(draft.outputs):
            if ref not in labels:
                name = f"{user}/{number}" + (f".{position}" if position else "")
                while name in own_tensors:
                    name += "'"
                labels[ref] = name
                own_tensors.add(name)
    return names


def _nodes(
    live: Sequence[Draft],
    names: Sequence[str],
    labels: Mapping[Ref, str],
    users: Sequence[str],
) -> tuple[Node, ...]:
    whole = _composites(live)
    return tuple(
        Node(
            name=name,
            op=draft.op,
            inputs=tuple([labels[ref] for ref in draft.inputs]),
            outputs=tuple([labels[ref] for ref in draft.outputs]),
            attributes=draft.attributes,
            origins=tuple(
                dict.fromkeys(users[u] for u in (draft.user, *draft.guests) if u >= 0)
            ),
            composite=users[draft.user] if draft.user in whole else "",
        )
        for draft, name in zip(live, names, strict=True)
    )


def _composites(live: Sequence[Draft]) -> set[int]:
    """User nodes of which one computing primitive feeds another."""
    seen: dict[Ref, int] = {}
    whole: set[int] = set()
    for draft in live:
        feeds = any(seen.get(ref) == draft.user for ref in draft.inputs)
        is_view = draft.op == "reshape"
        if feeds and not is_view:
            whole.add(draft.user)
        if feeds or not is_view:
            seen.update(dict.fromkeys(draft.outputs, draft.user))
    whole.discard(-1)
    return whole
