"""How each primitive is written as nodes of ONNX.

One row per primitive operator says how it is spelled; a row also names the element
types for which the runtime has a CPU kernel. Other types are computed in a wider one
between two casts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, cast

from onnx import NodeProto, TensorProto, helper

from tuner.errors import InternalError
from tuner.ir.graph import Attribute, Graph, Node
from tuner.ir.inference import ints, whole
from tuner.ir.types import DType

_INT64_MIN: Final = -(1 << 63)
ELEMENT: Final[Mapping[DType, int]] = MappingProxyType(
    {
        DType.F64: TensorProto.DOUBLE,
        DType.F32: TensorProto.FLOAT,
        DType.F16: TensorProto.FLOAT16,
        DType.BF16: TensorProto.BFLOAT16,
        DType.I64: TensorProto.INT64,
        DType.I32: TensorProto.INT32,
        DType.I8: TensorProto.INT8,
        DType.U8: TensorProto.UINT8,
        DType.BOOL: TensorProto.BOOL,
    }
)
_FLOATS: Final = frozenset({DType.F64, DType.F32, DType.F16})
_WHOLE: Final = frozenset({DType.I64, DType.I32})
_NUMBERS: Final = _FLOATS | _WHOLE
_BYTES: Final = frozenset({DType.I8, DType.U8})
_ALL: Final = frozenset(DType)
_SINGLE: Final = frozenset({DType.F32, DType.F16})
_WIDER: Final[Mapping[DType, tuple[DType, ...]]] = MappingProxyType(
    {
        DType.BF16: (DType.F32, DType.F64),
        DType.F16: (DType.F32, DType.F64),
        DType.F32: (DType.F64,),
        DType.F64: (DType.F32,),
        DType.U8: (DType.I32, DType.I64, DType.F32, DType.F64),
        DType.I8: (DType.I32, DType.I64, DType.F32, DType.F64),
        DType.I32: (DType.I64, DType.F64, DType.F32),
        DType.I64: (DType.I32, DType.F64, DType.F32),
        DType.BOOL: (DType.U8, DType.I32, DType.F32),
    }
)


@dataclass(slots=True)
class Writer:
    """Collects the nodes and constants of one model."""

    graph: Graph
    nodes: list[NodeProto] = field(default_factory=list)
    constants: list[TensorProto] = field(default_factory=list)

    def fresh(self) -> str:
        """A name that nothing has yet."""
        return f"__{len(self.nodes)}_{len(self.constants)}"

    def add(
        self, op: str, inputs: Sequence[str], output: str = "", **attributes: Any
    ) -> str:
        """Write a node of one result; gives the result's name."""
        name = output or self.fresh()
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def constant(self, values: Sequence[int]) -> str:
        """A vector of whole numbers, by its name."""
        name = self.fresh()
        self.constants.append(
            helper.make_tensor(name, TensorProto.INT64, [len(values)], list(values))
        )
        return name

    def scalar(self, value: Attribute, dtype: DType) -> str:
        """A number of an element type, by its name."""
        name = self.fresh()
        self.constants.append(
            helper.make_tensor(name, ELEMENT[dtype], [], [cast("float", value)])
        )
        return name

    def vector(self, count: int, value: float) -> str:
        """A vector of equal numbers of f32, by its name."""
        name = self.fresh()
        self.constants.append(
            helper.make_tensor(name, TensorProto.FLOAT, [count], [value] * count)
        )
        return name

    def cast(self, name: str, dtype: DType, output: str = "") -> str:
        """Write a cast; gives its result's name."""
        return self.add("Cast", [name], output, to=ELEMENT[dtype])


@dataclass(frozen=True, slots=True)
class _Call:
    """A node to write.

    Attributes:
        inputs: names of the operands, already in the element type computed in.
        dtype: the element type computed in.
        output: name of the first result.
    """

    writer: Writer
    node: Node
    inputs: Sequence[str]
    dtype: DType
    output: str


Emit = Callable[[_Call], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """How one primitive is written.

    Attributes:
        native: element types (of the first value operand) with a CPU kernel.
        values: first and end of the operands that are cast to the element type.
        gives_bool: whether the result is bool whatever it was computed in.
    """

    emit: Emit
    native: frozenset[DType]
    values: tuple[int, int | None] = (0, None)
    gives_bool: bool = False


def _plain(op: str, **attributes: Any) -> Emit:
    def emit(call: _Call) -> None:
        call.writer.add(op, call.inputs, call.output, **attributes)

    return emit


def _round(call: _Call) -> None:
    """Rounding a whole number is nothing."""
    call.writer.add(
        "Round" if call.dtype.is_float else "Identity", call.inputs, call.output
    )


def _floor_mod(call: _Call) -> None:
    """ONNX has the floored remainder for integers alone."""
    if not call.dtype.is_float:
        call.writer.add("Mod", call.inputs, call.output)
        return
    left, right = call.inputs
    quotient = call.writer.add("Floor", [call.writer.add("Div", [left, right])])
    call.writer.add(
        "Sub", [left, call.writer.add("Mul", [quotient, right])], call.output
    )


def _cast(call: _Call) -> None:
    call.writer.cast(
        call.inputs[0], DType(cast("str", call.node.attributes["to"])), call.output
    )


def _reshape(call: _Call) -> None:
    """A zero is meant as one; opsets before 14 know no way to say so."""
    extents = ints(call.node.attributes, "shape")
    zero = {"allowzero": 1} if 0 in extents else {}
    shape = call.writer.constant(extents)
    call.writer.add("Reshape", [call.inputs[0], shape], call.output, **zero)


def _expand(call: _Call) -> None:
    shape = call.writer.constant(ints(call.node.attributes, "shape"))
    call.writer.add("Expand", [call.inputs[0], shape], call.output)


def _transpose(call: _Call) -> None:
    perm = list(ints(call.node.attributes, "perm"))
    call.writer.add(
        "Transpose", call.inputs, call.output, **({"perm": perm} if perm else {})
    )


def _slice(call: _Call) -> None:
    starts, steps, sizes = (
        ints(call.node.attributes, key) for key in ("starts", "steps", "sizes")
    )
    if not starts:
        call.writer.add("Identity", call.inputs, call.output)
        return
    ends = [a + n * d for a, d, n in zip(starts, steps, sizes, strict=True)]
    stops = [_INT64_MIN if end < 0 else end for end in ends]
    rows = (starts, stops, range(len(starts)), steps)
    names = [call.writer.constant(list(row)) for row in rows]
    call.writer.add("Slice", [call.inputs[0], *names], call.output)


def _concat(call: _Call) -> None:
    call.writer.add(
        "Concat", call.inputs, call.output, axis=whole(call.node.attributes, "axis")
    )


def _pad(call: _Call) -> None:
    before, after = (
        ints(call.node.attributes, "before"),
        ints(call.node.attributes, "after"),
    )
    if not before:
        call.writer.add("Identity", call.inputs, call.output)
        return
    widths = call.writer.constant([*before, *after])
    filler = call.writer.scalar(call.node.attributes["value"], call.dtype)
    call.writer.add("Pad", [call.inputs[0], widths, filler], call.output)


def _gather(call: _Call) -> None:
    table, index = call.inputs
    if call.writer.graph.types[call.node.inputs[1]].dtype not in _WHOLE:
        index = call.writer.cast(index, DType.I64)
    call.writer.add(
        "Gather", [table, index], call.output, axis=whole(call.node.attributes, "axis")
    )


def _reduction(op: str) -> Emit:
    def emit(call: _Call) -> None:
        axes = ints(call.node.attributes, "axes")
        if not axes:
            call.writer.add("Identity", call.inputs, call.output)
            return
        names = [call.inputs[0], call.writer.constant(axes)]
        call.writer.add(
            op, names, call.output, keepdims=whole(call.node.attributes, "keepdims")
        )

    return emit


def _conv(call: _Call) -> None:
    spatial = ("strides", "pads", "dilations")
    attributes: dict[str, Any] = {
        k: list(ints(call.node.attributes, k)) for k in spatial
    }
    group = whole(call.node.attributes, "group")
    call.writer.add("Conv", call.inputs, call.output, group=group, **attributes)


def _pool(op: str) -> Emit:
    def emit(call: _Call) -> None:
        given = call.node.attributes
        attributes: dict[str, Any] = {
            "kernel_shape": list(ints(given, "kernel")),
            "strides": list(ints(given, "strides")),
            "pads": list(ints(given, "pads")),
            "dilations": list(ints(given, "dilations")),
            "ceil_mode": whole(given, "ceil"),
        }
        if op == "AveragePool":
            attributes["count_include_pad"] = whole(given, "count_pads")
        call.writer.add(op, call.inputs, call.output, **attributes)

    return emit


def _opaque(call: _Call) -> None:
    """The user's own node again: `ik` and `ok` in it are its k-th input and output."""
    proto = NodeProto()
    proto.ParseFromString(cast("bytes", call.node.attributes["proto"]))
    names = {f"i{k}": name for k, name in enumerate(call.inputs)}
    made = {f"o{k}": name for k, name in enumerate(call.node.outputs)}
    _rename_inputs(proto, names)
    outputs = [made.get(name, name) for name in proto.output]
    del proto.output[:]
    proto.output.extend(outputs)
    call.writer.nodes.append(proto)


def _rename_inputs(proto: NodeProto, names: Mapping[str, str]) -> None:
    """Give a node, and what its subgraphs read from around it, other inputs."""
    renamed = [names.get(name, name) for name in proto.input]
    del proto.input[:]
    proto.input.extend(renamed)
    for attribute in proto.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for node in graph.node:
                _rename_inputs(node, names)
            for value in graph.output:
                value.name = names.get(value.name, value.name)


def _rows(
    table: Mapping[str, tuple[str, frozenset[DType]]], **more: Any
) -> dict[str, Row]:
    return {
        name: Row(emit=_plain(op), native=native, **more)
        for name, (op, native) in table.items()
    }


ROWS: Final[Mapping[str, Row]] = MappingProxyType(
    {
        **_rows(
            {
                "neg": ("Neg", _NUMBERS | {DType.I8}),
                "abs": ("Abs", _NUMBERS | _BYTES),
                "sign": ("Sign", _NUMBERS | _BYTES),
                "floor": ("Floor", _FLOATS),
                "ceil": ("Ceil", _FLOATS),
                "sqrt": ("Sqrt", _FLOATS),
                "reciprocal": ("Reciprocal", _FLOATS),
                "exp": ("Exp", _FLOATS),
                "log": ("Log", _FLOATS),
                "sin": ("Sin", _FLOATS),
                "cos": ("Cos", _SINGLE),
                "tan": ("Tan", _SINGLE),
                "asin": ("Asin", _SINGLE),
                "acos": ("Acos", _SINGLE),
                "atan": ("Atan", _SINGLE),
                "sinh": ("Sinh", _SINGLE),
                "cosh": ("Cosh", _SINGLE),
                "tanh": ("Tanh", _FLOATS),
                "asinh": ("Asinh", _SINGLE),
                "acosh": ("Acosh", _SINGLE),
                "atanh": ("Atanh", _SINGLE),
                "erf": ("Erf", _SINGLE),
                "bit_not": ("BitwiseNot", _WHOLE | _BYTES),
                "relu": ("Relu", _FLOATS | {DType.I32, DType.I8}),
                "sigmoid": ("Sigmoid", _FLOATS),
                "add": ("Add", _NUMBERS),
                "sub": ("Sub", _NUMBERS),
                "mul": ("Mul", _NUMBERS),
                "div": ("Div", _NUMBERS),
                "pow": ("Pow", _NUMBERS),
                "minimum": ("Min", _NUMBERS),
                "maximum": ("Max", _NUMBERS),
                "bit_and": ("BitwiseAnd", _WHOLE | _BYTES),
                "bit_or": ("BitwiseOr", _WHOLE | _BYTES),
                "bit_xor": ("BitwiseXor", _WHOLE | _BYTES),
            }
        ),
        "rint": Row(emit=_round, native=_ALL - {DType.BF16}),
        "fmod": Row(emit=_plain("Mod", fmod=1), native=_NUMBERS | _BYTES),
        "floor_mod": Row(emit=_floor_mod, native=_NUMBERS | _BYTES),
        "shift_left": Row(
            emit=_plain("BitShift", direction="LEFT"), native=frozenset({DType.U8})
        ),
        "shift_right": Row(
            emit=_plain("BitShift", direction="RIGHT"), native=frozenset({DType.U8})
        ),
        **_rows(
            {
                "less": ("Less", _NUMBERS),
                "less_equal": ("LessOrEqual", _NUMBERS),
                "greater": ("Greater", _NUMBERS),
                "greater_equal": ("GreaterOrEqual", _NUMBERS),
                "equal": ("Equal", _NUMBERS | {DType.BOOL}),
                "logical_and": ("And", frozenset({DType.BOOL})),
                "logical_or": ("Or", frozenset({DType.BOOL})),
                "logical_xor": ("Xor", frozenset({DType.BOOL})),
                "logical_not": ("Not", frozenset({DType.BOOL})),
                "isnan": ("IsNaN", _FLOATS),
                "isinf": ("IsInf", _FLOATS),
            },
            gives_bool=True,
        ),
        "where": Row(
            emit=_plain("Where"),
            native=_NUMBERS | {DType.U8},
            values=(1, None),
        ),
        "cast": Row(emit=_cast, native=_ALL),
        "reshape": Row(emit=_reshape, native=_ALL),
        "transpose": Row(emit=_transpose, native=_ALL),
        "slice": Row(emit=_slice, native=_ALL - {DType.BF16}),
        "expand": Row(emit=_expand, native=_ALL - {DType.BF16}),
        "concat": Row(emit=_concat, native=_ALL),
        "pad": Row(emit=_pad, native=_ALL - {DType.BF16}),
        "gather": Row(emit=_gather, native=_ALL, values=(0, 1)),
        "reduce_sum": Row(emit=_reduction("ReduceSum"), native=_NUMBERS),
        "reduce_prod": Row(emit=_reduction("ReduceProd"), native=_SINGLE | _WHOLE),
        "reduce_max": Row(emit=_reduction("ReduceMax"), native=_NUMBERS | _BYTES),
        "reduce_min": Row(emit=_reduction("ReduceMin"), native=_NUMBERS | _BYTES),
        "matmul": Row(emit=_plain("MatMul"), native=_NUMBERS),
        "conv": Row(emit=_conv, native=_SINGLE),
        "max_pool": Row(emit=_pool("MaxPool"), native=_FLOATS | _BYTES),
        "average_pool": Row(emit=_pool("AveragePool"), native=_SINGLE),
        "opaque": Row(emit=_opaque, native=_ALL),
    }
)


def _widened(row: Row, dtype: DType) -> DType:
    if dtype in row.native:
        return dtype
    wider = (other for other in _WIDER[dtype] if other in row.native)
    chosen = next(wider, None)
    if chosen is None:
        raise InternalError(str(dtype), "no wider type that the library computes in")
    return chosen


def write_node(writer: Writer, node: Node) -> None:
    """Write a primitive or opaque node, between casts where it needs them."""
    row = ROWS[node.op]
    types = writer.graph.types
    if node.op in ("opaque", "cast"):
        row.emit(_Call(writer, node, node.inputs, DType.F32, node.outputs[0]))
        return
    valued = slice(*row.values)
    operands = node.inputs[valued]
    dtype = types[operands[0]].dtype
    used = _widened(row, dtype)
    cast_places = range(*valued.indices(len(node.inputs)))
    inputs = [
        writer.cast(name, used)
        if index in cast_places and types[name].dtype is not used
        else name
        for index, name in enumerate(node.inputs)
    ]
    output = node.outputs[0]
    if used is dtype or row.gives_bool:
        row.emit(_Call(writer, node, inputs, used, output))
        return
    raw = writer.fresh() + "w"
    row.emit(_Call(writer, node, inputs, used, raw))
    writer.cast(raw, types[output].dtype, output)
