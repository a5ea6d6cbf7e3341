"""Graphs for tests: a builder, a generator of random ones, renaming and reordering."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from tuner.ir.graph import Attribute, Graph, Node
from tuner.ir.interpreter import evaluate
from tuner.ir.ops import OPS
from tuner.ir.types import Array, DType, TensorType
from tuner.rewrite import Rewritten


class Builder:
    """Adds nodes one by one; each call gives the name of the new tensor."""

    def __init__(self) -> None:
        """Start empty."""
        self.nodes: list[Node] = []
        self.inputs: list[str] = []
        self.weights: list[str] = []
        self.constants: dict[str, Array] = {}
        self.types: dict[str, TensorType] = {}

    def given(self, *shape: int | str, dtype: DType = DType.F32) -> str:
        """A new graph input."""
        name = f"input{len(self.inputs)}"
        self.inputs.append(name)
        self.types[name] = TensorType(dtype=dtype, shape=shape)
        return name

    def weight(self, *shape: int, dtype: DType = DType.F32) -> str:
        """A new weight."""
        name = f"weight{len(self.weights)}"
        self.weights.append(name)
        self.types[name] = TensorType(dtype=dtype, shape=shape)
        return name

    def constant(self, value: object, dtype: DType = DType.F32) -> str:
        """A new constant."""
        array = np.asarray(value, dtype=dtype.numpy)
        name = f"constant{len(self.constants)}"
        self.constants[name] = array
        self.types[name] = TensorType(dtype=dtype, shape=array.shape)
        return name

    def add(
        self, op: str, *inputs: str, composite: str = "", **attributes: Attribute
    ) -> str:
        """A new node; it is its own origin."""
        infer = OPS[op].infer
        assert infer is not None
        name = f"{op}{len(self.nodes)}"
        result = f"{name}_out"
        self.types[result] = infer([self.types[i] for i in inputs], attributes)[0]
        self.nodes.append(
            Node(
                name=name,
                op=op,
                inputs=inputs,
                outputs=(result,),
                attributes=MappingProxyType(attributes),
                origins=(name,),
                composite=composite,
            )
        )
        return result

    def opaque(self, op_type: str, *inputs: str, shape: tuple[int, ...]) -> str:
        """A new opaque node."""
        name = f"{op_type}{len(self.nodes)}"
        result = f"{name}_out"
        self.types[result] = TensorType(dtype=DType.F32, shape=shape)
        known = {"domain": "", "op_type": op_type, "opset": 20, "proto": b"text"}
        self.nodes.append(
            Node(
                name=name,
                op="opaque",
                inputs=inputs,
                outputs=(result,),
                attributes=MappingProxyType(known),
                origins=(name,),
            )
        )
        return result

    def graph(self, *outputs: str) -> Graph:
        """The graph with these outputs."""
        return Graph(
            nodes=tuple(self.nodes),
            inputs=tuple(self.inputs),
            weights=tuple(self.weights),
            constants=MappingProxyType(dict(self.constants)),
            outputs=outputs,
            types=MappingProxyType(dict(self.types)),
        )


def feeds(graph: Graph, seed: int = 0) -> dict[str, Array]:
    """Random values for inputs and weights, away from zero."""
    generator = np.random.default_rng(seed)
    values: dict[str, Array] = {}
    for name in (*graph.inputs, *graph.weights):
        kind = graph.types[name]
        if kind.dtype is DType.BOOL:
            values[name] = generator.integers(0, 2, kind.static_shape).astype(bool)
        elif kind.dtype.is_float:
            spread = generator.uniform(0.5, 1.5, kind.static_shape)
            signs = generator.choice([-1.0, 1.0], kind.static_shape)
            values[name] = np.asarray(spread * signs).astype(kind.dtype.numpy)
        else:
            ints = generator.integers(0, 4, kind.static_shape)
            values[name] = np.asarray(ints).astype(kind.dtype.numpy)
    return values


def run(rewritten: Rewritten, values: Mapping[str, Array]) -> list[Array]:
    """Outputs of a rewritten graph in float64, in order."""
    known = dict(values)
    prepare = rewritten.prepare
    known.update(evaluate(prepare, known, precision="float64"))
    found = evaluate(rewritten.graph, known, precision="float64")
    return [found[name] for name in rewritten.graph.outputs]


def outputs(graph: Graph, values: Mapping[str, Array]) -> list[Array]:
    """Outputs of a graph in float64, in order."""
    found = evaluate(graph, values, precision="float64")
    return [found[name] for name in graph.outputs]


def shuffled(graph: Graph, seed: int) -> Graph:
    """The same graph with other names, in another topological order."""
    choose = random.Random(seed)
    names = list(graph.types)
    labels = [f"v{number}" for number in range(len(names))]
    choose.shuffle(labels)
    rename = dict(zip(names, labels, strict=True))
    waiting = list(graph.nodes)
    ready = {*graph.inputs, *graph.weights, *graph.constants}
    ordered: list[Node] = []
    while waiting:
        able = [n for n in waiting if all(i in ready for i in n.inputs)]
        node = choose.choice(able)
        waiting.remove(node)
        ready.update(node.outputs)
        ordered.append(node)
    ids = [f"w{number}" for number in range(len(ordered))]
    choose.shuffle(ids)
    groups = {n.composite: f"g{choose.random()}" for n in ordered if n.composite}
    return Graph(
        nodes=tuple(
            replace(
                node,
                name=ids[number],
                inputs=tuple(rename[i] for i in node.inputs),
                outputs=tuple(rename[o] for o in node.outputs),
                composite=groups.get(node.composite, ""),
                origins=(ids[number],),
            )
            for number, node in enumerate(ordered)
        ),
        inputs=tuple(_mixed([rename[i] for i in graph.inputs], choose)),
        weights=tuple(_mixed([rename[w] for w in graph.weights], choose)),
        constants=MappingProxyType(
            {
                rename[name]: graph.constants[name]
                for name in _mixed(list(graph.constants), choose)
            }
        ),
        outputs=tuple(rename[o] for o in graph.outputs),
        types=MappingProxyType({rename[n]: t for n, t in graph.types.items()}),
    )


def _mixed(names: list[str], choose: random.Random) -> list[str]:
    return choose.sample(names, len(names))


class _Generator:
    """Grows a random graph out of what the rules look for."""

    def __init__(self, seed: int) -> None:
        self.choose = random.Random(seed)
        self.build = Builder()
        self.values = [self.build.given(2, 3, 4), self.build.given(1, 3, 1)]
        self.values += [self.build.weight(3, 4), self.build.weight(2, 3, 4)]
        self.numbers = [
            self.build.constant(v) for v in (1.0, 0.0, -0.0, 2.0, [[0.5], [1.5], [2.5]])
        ]
        self.truth = self.build.constant(True, DType.BOOL)

    def shape(self, name: str) -> tuple[int, ...]:
        return self.build.types[name].static_shape

    def grow(self) -> str:
        kinds = (
            self.unary,
            self.binary,
            self.binary,
            self.by_number,
            self.reshape,
            self.transpose,
            self.expand,
            self.slice,
            self.concat,
            self.casts,
            self.reduction,
            self.product,
            self.select,
            self.gather,
        )
        return self.choose.choice(kinds)(self.choose.choice(self.values[-8:]))

    def unary(self, name: str) -> str:
        op = self.choose.choice(["neg", "relu", "abs", "sigmoid", "tanh", "neg"])
        return self.build.add(op, name)

    def binary(self, name: str) -> str:
        shape = self.shape(name)
        fits = [v for v in self.values if self.fits(shape, self.shape(v))]
        op = self.choose.choice(["add", "sub", "mul", "maximum"])
        pair = [name, self.choose.choice(fits)]
        self.choose.shuffle(pair)
        return self.build.add(op, *pair)

    @staticmethod
    def fits(left: tuple[int, ...], right: tuple[int, ...]) -> bool:
        try:
            return np.prod(np.broadcast_shapes(left, right)) < 512
        except ValueError:
            return False

    def by_number(self, name: str) -> str:
        number = self.choose.choice(self.numbers[:4])
        op = self.choose.choice(["add", "sub", "mul", "pow", "div"])
        if op == "pow":
            name = self.build.add("tanh", name)
        if op in ("pow", "div"):
            number = self.choose.choice([self.numbers[0], self.numbers[3]])
        return self.build.add(op, name, number)

    def reshape(self, name: str) -> str:
        shape = list(self.shape(name))
        action = self.choose.randrange(3)
        if action == 0:
            shape.insert(self.choose.randint(0, len(shape)), 1)
        elif action == 1:
            shape = [extent for extent in shape if extent != 1]
        else:
            shape = [int(np.prod(shape))]
        return self.build.add("reshape", name, shape=tuple(shape))

    def transpose(self, name: str) -> str:
        perm = list(range(len(self.shape(name))))
        self.choose.shuffle(perm)
        return self.build.add("transpose", name, perm=tuple(perm))

    def expand(self, name: str) -> str:
        shape = tuple(e if e != 1 else 3 for e in self.shape(name))
        shape = (*self.choose.choice([(), (), (2,)]), *shape)
        if np.prod(shape) >= 512:
            return name
        return self.build.add("expand", name, shape=shape)

    def slice(self, name: str) -> str:
        starts, steps, sizes = [], [], []
        for extent in self.shape(name):
            size = self.choose.choice([extent, max(1, extent // 2)])
            step = self.choose.choice([1, 1, -1])
            starts.append(0 if step == 1 else size - 1)
            steps.append(step)
            sizes.append(size)
        return self.build.add(
            "slice", name, starts=tuple(starts), steps=tuple(steps), sizes=tuple(sizes)
        )

    def concat(self, name: str) -> str:
        shape = self.shape(name)
        if not shape or np.prod(shape) > 200:
            return name
        axis = self.choose.randrange(len(shape))
        both = self.build.add("concat", name, self.build.add("abs", name), axis=axis)
        return self.choose.choice([both, self.slice(both)])

    def casts(self, name: str) -> str:
        wide = self.build.add("cast", name, to=self.choose.choice(["f64", "f32"]))
        return self.build.add("cast", wide, to="f32")

    def reduction(self, name: str) -> str:
        rank = len(self.shape(name))
        axes = tuple(sorted(self.choose.sample(range(rank), min(rank, 1))))
        keep = self.choose.randrange(2)
        op = self.choose.choice(["reduce_sum", "reduce_max"])
        return self.build.add(op, name, axes=axes, keepdims=keep)

    def product(self, name: str) -> str:
        shape = self.shape(name)
        if len(shape) < 2:
            return name
        weight = self.build.weight(shape[-1], 4)
        value = self.build.add("matmul", name, weight)
        for _ in range(self.choose.randint(0, 3)):
            op = self.choose.choice(["mul", "add", "div"])
            number = self.build.weight(4) if op == "add" else self.numbers[3]
            value = self.build.add(op, value, number)
        return value

    def select(self, name: str) -> str:
        fits = [v for v in self.values if self.fits(self.shape(name), self.shape(v))]
        return self.build.add("where", self.truth, name, self.choose.choice(fits))

    def gather(self, name: str) -> str:
        shape = self.shape(name)
        if not shape:
            return name
        axis = self.choose.randrange(len(shape))
        index = self.choose.choice([0, -1, [0], list(range(shape[axis]))])
        table = self.build.constant(index, DType.I64)
        return self.build.add("gather", name, table, axis=axis)


def random_graph(seed: int, nodes: int = 25) -> Graph:
    """A random graph that gives many rules something to do."""
    generator = _Generator(seed)
    while len(generator.build.nodes) < nodes:
        generator.values.append(generator.grow())
    made = {o for node in generator.build.nodes for o in node.outputs}
    values = [v for v in dict.fromkeys(generator.values) if v in made]
    chosen = [values[-1], *generator.choose.sample(values, 2)]
    return generator.build.graph(*dict.fromkeys(chosen))
