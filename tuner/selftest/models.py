"""Whole models without a solver: built here or read from a folder, fused by rules."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from cost_model.device import Device
from cost_model.roofline import predict
from tuner.calibration.timing import DIALECTS
from tuner.errors import UnsupportedModel, VerificationFailed
from tuner.execution import scratch_of
from tuner.frontend.fill import random_inputs, random_weights
from tuner.fusion.legality import Limits, Refusal, Rules
from tuner.fusion.memory import plan_memory
from tuner.fusion.order import launch_order
from tuner.fusion.tvm import tvm_groups
from tuner.fusion.view import View
from tuner.ir.graph import Graph, extract
from tuner.ir.interpreter import to_bf16
from tuner.ir.types import Array, DType
from tuner.kernel.count import work
from tuner.kernel.errors import CannotLower
from tuner.kernel.lower import lower
from tuner.kernel.nest import LoopNest
from tuner.kernel.render import render
from tuner.kernel.schedule import default
from tuner.kernel.split import is_scratch, launches
from tuner.kernel.split_space import split_default
from tuner.model import Model, load
from tuner.plan import Choice, Schedule, Source
from tuner.runtime.backend import Backend
from tuner.runtime.bench import interpret
from tuner.runtime.executor import Executor, prepared
from tuner.runtime.library import is_available
from tuner.runtime.requests import Program, Step
from tuner.runtime.verification import Verdict
from tuner.runtime.whole import compare
from tuner.selftest.subjects import launched

OPSET: Final = 21
_IR_VERSION: Final = 10
_LARGEST_BYTES: Final = 4 << 20
COUNT: Final = 4

Build = Callable[[], ModelProto]


def _model(
    nodes: Sequence[NodeProto],
    inputs: Mapping[str, Sequence[int]],
    outputs: Mapping[str, Sequence[int]],
    weights: Mapping[str, Sequence[int]],
) -> ModelProto:
    """A model whose weights are small seeded numbers."""
    rng = np.random.default_rng(0)
    infos = [
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape))
            for name, shape in table.items()
        ]
        for table in (inputs, outputs)
    ]
    values = [
        numpy_helper.from_array(
            (rng.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32), name
        )
        for name, shape in weights.items()
    ]
    graph = helper.make_graph(nodes, "selftest", infos[0], infos[1], initializer=values)
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=_IR_VERSION
    )


def _node(op: str, inputs: str, output: str, **attributes: Any) -> NodeProto:
    return helper.make_node(op, inputs.split(), [output], name=output, **attributes)


def _encoder() -> ModelProto:
    """One layer of a transformer, with one head."""
    rows, width, wide = 128, 192, 384
    nodes = [
        *(_node("MatMul", f"x w{n}", n) for n in "qkv"),
        _node("Transpose", "k", "kt", perm=[1, 0]),
        _node("MatMul", "q kt", "scores"),
        _node("Softmax", "scores", "attention", axis=-1),
        _node("MatMul", "attention v", "mixed"),
        _node("Add", "mixed x", "residual"),
        _node("LayerNormalization", "residual scale shift", "normed", axis=-1),
        _node("MatMul", "normed up", "hidden"),
        _node("Gelu", "hidden", "active"),
        _node("MatMul", "active down", "made"),
        _node("Add", "made normed", "y"),
    ]
    square = dict.fromkeys(("wq", "wk", "wv"), (width, width))
    vectors = dict.fromkeys(("scale", "shift"), (width,))
    rest = {"up": (width, wide), "down": (wide, width)}
    shape = (rows, width)
    return _model(nodes, {"x": shape}, {"y": shape}, {**square, **vectors, **rest})


def _picture() -> ModelProto:
    """Convolutions with activation, a residual, pooling, and a classifier."""
    around: dict[str, Any] = {"pads": [1, 1, 1, 1], "kernel_shape": [3, 3]}
    nodes = [
        _node("Conv", "x w1 b1", "c1", **around),
        _node("Relu", "c1", "r1"),
        _node("Conv", "r1 w2 b2", "c2", **around),
        _node("Add", "c2 r1", "a2"),
        _node("Relu", "a2", "r2"),
        _node("MaxPool", "r2", "p2", kernel_shape=[2, 2], strides=[2, 2]),
        _node("GlobalAveragePool", "p2", "g"),
        _node("Flatten", "g", "f"),
        _node("Gemm", "f w3 b3", "y"),
    ]
    weights: dict[str, tuple[int, ...]] = {
        "w1": (16, 3, 3, 3),
        "w2": (16, 16, 3, 3),
        "w3": (16, 10),
    }
    weights |= {"b1": (16,), "b2": (16,), "b3": (10,)}
    return _model(nodes, {"x": (2, 3, 32, 32)}, {"y": (2, 10)}, weights)


def _optimizer() -> ModelProto:
    """A step of Adam: element-wise, three results."""
    nodes = [
        _node("Mul", "m keep", "mk"),
        _node("Mul", "g give", "gg"),
        _node("Add", "mk gg", "m1"),
        _node("Mul", "g g", "g2"),
        _node("Mul", "v keep", "vk"),
        _node("Mul", "g2 give", "gv"),
        _node("Add", "vk gv", "v0"),
        _node("Abs", "v0", "v1"),
        _node("Sqrt", "v1", "root"),
        _node("Add", "root one", "spread"),
        _node("Div", "m1 spread", "ratio"),
        _node("Mul", "ratio give", "step"),
        _node("Sub", "p step", "p1"),
    ]
    shape = (256, 384)
    scalars = dict.fromkeys(("keep", "give", "one"), (1,))
    made = dict.fromkeys(("p1", "m1", "v1"), shape)
    return _model(nodes, dict.fromkeys("pgmv", shape), made, scalars)


def _losses() -> ModelProto:
    """Statistics over rows and columns: a softmax, its cross-entropy, and means."""
    nodes = [
        _node("LogSoftmax", "x", "log", axis=-1),
        _node("Mul", "log t", "weighted"),
        _node("ReduceSum", "weighted last", "loss", keepdims=0),
        _node("ReduceSum", "weighted both", "total", keepdims=0),
        _node("ReduceMean", "x first", "mean", keepdims=1),
        _node("Sub", "x mean", "centred"),
        _node("Tanh", "centred", "y"),
    ]
    made = _model(
        nodes,
        {"x": (400, 1500), "t": (400, 1500)},
        {"loss": (400,), "total": (), "y": (400, 1500)},
        {},
    )
    for name, axes in (("last", [1]), ("first", [0]), ("both", [0, 1])):
        made.graph.initializer.append(numpy_helper.from_array(np.array(axes), name))
    return made


BUILT: Final[Mapping[str, Build]] = MappingProxyType(
    {
        "encoder": _encoder,
        "picture": _picture,
        "optimizer": _optimizer,
        "losses": _losses,
    }
)


def names(folder: Path | None) -> tuple[str, ...]:
    """Models to run: the smallest files of a folder, or those that are built here."""
    if folder is None:
        return tuple(BUILT)
    files = [f for f in folder.glob("*.onnx") if f.stat().st_size <= _LARGEST_BYTES]
    files.sort(key=lambda file: (file.stat().st_size, file.name))
    return tuple(str(file) for file in files[:COUNT])


def read(name: str) -> Model:
    """A model by its name here, or from a file."""
    if name in BUILT:
        return load(BUILT[name]().SerializeToString())
    return load(Path(name).read_bytes())


def program_of(model: Model, device: Device) -> Program:
    """The model as kernels of ours, grouped by TVM's rules: no solver takes part.

    Raises:
        UnsupportedModel: a part needs a library, and none is installed.
    """
    graph, prepare = model.graph, model.prepare
    choices = _grouped(graph, Limits.of(device))
    steps = tuple(
        _step(model, choice, f"k{place}", device)
        for place, choice in enumerate(choices)
    )
    scratch = [step.source.scratch if step.source else {} for step in steps]
    given = (*graph.weights, *prepare.weights, *prepare.inputs)
    made = set(prepare.outputs)
    return Program(
        steps=steps,
        inputs=graph.inputs,
        outputs=graph.outputs,
        weights=tuple(dict.fromkeys(name for name in given if name not in made)),
        constants={**prepare.constants, **graph.constants},
        types={**prepare.types, **graph.types, **scratch_of(steps)},
        memory=plan_memory(
            graph,
            [choice.region for choice in choices],
            [{name: kind.bytes for name, kind in each.items()} for each in scratch],
        ),
        prepare=prepare if prepare.nodes else None,
    )


def _grouped(graph: Graph, limits: Limits) -> tuple[Choice, ...]:
    view = View(graph)
    rules = Rules(view, "full", limits)
    found = []
    for mask in tvm_groups(rules, [1 << i for i in range(len(view.nodes))]):
        outputs = view.wanted(mask)
        family = rules.judge(mask, outputs)
        assert not isinstance(family, Refusal), family
        region = view.region(mask, outputs)
        found.append(Choice(region=region, family=family, seconds=0.0))
    return launch_order(graph, found)


def _step(model: Model, choice: Choice, name: str, device: Device) -> Step:
    small = extract(model.graph, choice.region)
    with contextlib.suppress(CannotLower):
        source, _ = generated(small, device)
        return Step(name=name, graph=small, source=_bound(source, name))
    if not is_available():
        ops = ", ".join(sorted({node.op for node in small.nodes}))
        raise UnsupportedModel(ops, "runs in a library, and none is installed here")
    return Step(name=name, graph=small)


def _chosen(nest: LoopNest, device: Device) -> Schedule:
    """What costs least unmeasured: reductions of few long rows are two launches."""

    def seconds(schedule: Schedule) -> float:
        works = [work(*each, device) for each in launches(nest, schedule)]
        return sum(predict(each, device).seconds for each in works)

    return min((default(nest, device), *split_default(nest, device)), key=seconds)


def _bound(source: Source, step: str) -> Source:
    """The same source with scratch memory that is no other step's."""
    arguments = tuple(
        replace(a, tensor=f"{step}{a.tensor}") if is_scratch(a.tensor) else a
        for a in source.arguments
    )
    before = tuple(_bound(each, step) for each in source.before)
    return replace(source, arguments=arguments, before=before)


def generated(small: Graph, device: Device) -> tuple[Source, tuple[Graph, ...]]:
    """A kernel of ours, and what each of its launches computes.

    Raises:
        CannotLower: no kernel of ours computes the graph.
    """
    nest = lower(small)
    schedule = _chosen(nest, device)
    source = render(nest, schedule, DIALECTS[device.kind])
    return source, launched(nest, schedule)


def run(model: Model, program: Program, backend: Backend) -> Mapping[str, Any]:
    """Run a whole model, compare it with the interpreter in float64, and time it.

    Raises:
        VerificationFailed: an output differs.
    """
    imported = model.imported
    ids = {n: t for t, names in model.names.items() for n in names}
    known = {**random_weights(imported, 0), **imported.values}
    weights = {ids[n]: array for n, array in known.items() if n in ids}
    values = prepared(program, weights)
    start = perf_counter()
    executor = Executor(program, values, backend)
    opened = perf_counter() - start
    worst = Verdict()
    for seed in (0, 1):
        given = random_inputs(imported, seed)
        feeds = {ids[n]: array for n, array in given.items() if n in ids}
        feeds = {name: feeds[name] for name in program.inputs}
        outputs = executor.run(feeds)
        worst = _judged(model, program, {**values, **feeds}, outputs, worst)
    timed = executor.time(budget_seconds=0.5)
    return {
        "kernels": sum(step.source is not None for step in program.steps),
        "library_calls": sum(step.source is None for step in program.steps),
        "seconds": timed.seconds,
        "open_seconds": opened,
        "max_rel_error": worst.max_rel_error,
        "step_seconds": executor.step_seconds(3),
    }


def _judged(
    model: Model,
    program: Program,
    feeds: Mapping[str, Array],
    outputs: Mapping[str, Array],
    worst: Verdict,
) -> Verdict:
    graph = model.graph
    wanted = {name: feeds[name] for name in (*graph.inputs, *graph.weights)}
    truth = interpret(graph, wanted, "float64")
    for name in program.outputs:
        true = truth[name]
        if program.types[name].dtype is DType.BF16:
            true = to_bf16(np.asarray(true, np.float32))
        found = compare(program, name, outputs[name], true)
        if found.reason:
            raise VerificationFailed("model", found.reason)
        if found.max_rel_error > worst.max_rel_error:
            worst = found
    return worst
