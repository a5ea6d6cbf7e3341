"""A model as the planner sees it: canonical, rewritten, with the way back to names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Literal

from tuner.errors import InvalidOption, UnboundDimensions, UnsupportedModel
from tuner.frontend.imported import Imported
from tuner.frontend.onnx import read_onnx
from tuner.frontend.wire import read_json
from tuner.fusion.traffic import home_of
from tuner.fusion.view import ALIAS
from tuner.ir.custom import RuleSet
from tuner.ir.fingerprint import canonicalize
from tuner.ir.graph import Graph, Node
from tuner.ir.ops import OPS
from tuner.rewrite import simplify

Form = Literal["onnx", "json"]


@dataclass(frozen=True, kw_only=True)
class Model:
    """A canonical graph, and what is needed to speak to the user about it.

    Attributes:
        graph: what runs on every call, in canonical ids.
        prepare: what runs once at load; its outputs are weights of `graph`.
        names: canonical id -> names in the graph that was handed in.
        imported: the graph as handed in.
        fingerprint: identity of `graph` and `prepare`, names and order apart.
        import_seconds: from bytes to canonical graph.
    """

    graph: Graph
    prepare: Graph
    names: Mapping[str, tuple[str, ...]]
    imported: Imported
    fingerprint: str
    import_seconds: float

    def kinds(self, node: Node) -> frozenset[str]:
        """What fusion rules may call a node: operators, primitive, op pattern."""
        origins = self.names.get(node.name, ())
        told = self.imported.operators
        return frozenset(
            (
                node.op,
                OPS[node.op].pattern.name.lower(),
                *(told[name] for name in origins if name in told),
            )
        )

    def node_id(self, name: str) -> str:
        """Canonical id of a node given by id or by the user's name.

        Raises:
            InvalidOption: the graph has no such node.
        """
        return self.node_ids(name)[0]

    def node_ids(self, name: str) -> tuple[str, ...]:
        """The same of all parts of a node that was taken apart, views last.

        Raises:
            InvalidOption: the graph has no such node.
        """
        if name in self.graph.by_name:
            return (name,)
        found = [n for n in self.graph.nodes if name in self.names.get(n.name, ())]
        if not found:
            raise InvalidOption(
                name,
                "no node of the planned graph has this name",
                hint="take a node name of the model, or an id such as n12 of its plan",
            )
        return tuple(n.name for n in sorted(found, key=lambda n: n.op == ALIAS))

    def ends(self, a: str, b: str) -> tuple[str, str]:
        """A part of each of two nodes: where one reads the other, these two.

        Raises:
            InvalidOption: the graph has no such node.
        """
        return closest(self.node_ids(a), self.node_ids(b), self._is_edge)

    def _is_edge(self, a: str, b: str) -> bool:
        """Whether one of two nodes reads the other, by way of views or not."""
        first, second = self.graph.by_name[a], self.graph.by_name[b]
        return any(
            home_of(self.graph, name) in one.outputs
            for one, other in ((first, second), (second, first))
            for name in other.inputs
        )


def closest(
    first: Sequence[str],
    second: Sequence[str],
    *ties: Callable[[str, str], bool],
) -> tuple[str, str]:
    """A part of each of two nodes that were taken apart: those that are closest.

    Args:
        first: parts of one node.
        second: parts of the other.
        ties: what two parts may have in common, the closest tie first.

    Returns:
        Two parts with the closest tie that any two have; else any two that are not
        the same; the same one twice only where both nodes are nothing else.
    """
    both = [(a, b) for a in first for b in second if a != b]
    tied = (ends for tie in ties for ends in both if tie(*ends))
    return next(tied, both[0] if both else (first[0], second[0]))


def load(
    data: bytes,
    form: Form = "onnx",
    *,
    shapes: Mapping[str, int] | None = None,
    training: bool = False,
    rules: RuleSet | None = None,
    clock: Callable[[], float] = perf_counter,
) -> Model:
    """Read a model, bind its dimensions, simplify it and give it canonical ids.

    Args:
        data: an ONNX protobuf, or graph JSON in UTF-8.
        form: which of the two.
        shapes: sizes of symbolic dimensions; the model's own defaults fill the rest.
        training: whether normalisation statistics are live, so that nothing that
            depends on their values may be folded.
        rules: operators of the user's own.
        clock: seconds, for `import_seconds`.

    Raises:
        InvalidModel, UnsupportedModel, ModelTooLarge: see `tuner.frontend`.
        UnsupportedModel: also when an extent depends on the values of tensors.
        UnboundDimensions: a symbolic dimension has no size.
    """
    start = clock()
    read = read_onnx if form == "onnx" else read_json
    given = dict(shapes or {})
    imported = read(data, dims=given, use_defaults=True, rules=rules)
    if imported.symbols:
        missing = imported.symbols
        example = ",".join(f"{name}=1" for name in missing)
        raise UnboundDimensions(
            ", ".join(missing),
            "symbolic dimensions have no size",
            hint=f"give them, for example --shape {example}",
        )
    if imported.graph.symbols:
        raise _unsized(imported.graph)
    training = training or imported.is_training
    rewritten = simplify(imported.graph, training=training)
    canonical = canonicalize(rewritten.graph, rewritten.prepare)
    return Model(
        graph=canonical.graph,
        prepare=canonical.prepare,
        names=canonical.names,
        imported=imported,
        fingerprint=canonical.fingerprint,
        import_seconds=clock() - start,
    )


def _unsized(graph: Graph) -> UnsupportedModel:
    """Why a graph with an extent that no input has cannot be planned."""
    delivered = (name for name in graph.outputs if graph.types[name].symbols)
    made = (name for node in graph.nodes for name in node.outputs)
    inside = (name for name in made if graph.types[name].symbols)
    name = next(delivered, None) or next(inside, ", ".join(graph.symbols))
    return UnsupportedModel(
        name,
        "an extent of it is only known when the model runs",
        hint="state its sizes as value_info of the tensor if they never change, or "
        "cut the model before the operator that decides them",
    )
