"""Operators of the user's own: their primitives, and their meaning for a library."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import onnx
from onnx import TensorProto, helper

from tuner.errors import InvalidModel, UnsupportedModel
from tuner.frontend.builder import Builder, Ref
from tuner.frontend.call import Call
from tuner.ir import expr
from tuner.ir.custom import AS_VALUE, Arg, CustomOperator, Earlier, RuleSet
from tuner.ir.expr import Literal, Operand
from tuner.ir.ops import OPS, Pattern

_OLDEST_OPSET: Final = 15
"""The first with CastLike, which a body without fixed types needs."""


def _primitives() -> Mapping[str, str]:
    """The primitive that is a function of the kernel language and nothing else."""
    found = {}
    for name, row in OPS.items():
        if row.pattern is not Pattern.ELEMENTWISE or name == "cast":
            continue
        tree = expr.parse(row.expression)
        plain = tuple(Operand(k) for k in range(row.arity[1]))
        if isinstance(tree, expr.Call) and tree.args == plain:
            found[tree.function] = name
    return MappingProxyType(found)


PRIMITIVES: Final = _primitives()

_SPELLED: Final = {
    "lt": "Less",
    "le": "LessOrEqual",
    "gt": "Greater",
    "ge": "GreaterOrEqual",
    "eq": "Equal",
    "rint": "Round",
    "isnan": "IsNaN",
    "isinf": "IsInf",
    "fmod": "Mod",
}
"""ONNX operators that are not called as the function is."""


def expand(b: Builder, call: Call, operator: CustomOperator) -> Ref:
    """Add the primitives of a node with a custom operator.

    Raises:
        InvalidModel: the node does not fit what the operator's rule says.
    """
    given = _operands(b, call, operator)
    numbers = [_number(call, name, value) for name, value in operator.attributes]
    made: list[Ref] = []

    def ref(arg: Arg) -> Ref:
        if isinstance(arg, Earlier):
            return made[arg.step]
        if isinstance(arg, Operand) and arg.index < len(given):
            return given[arg.index]
        value = (
            arg.value if isinstance(arg, Literal) else numbers[arg.index - len(given)]
        )
        return b.scalar(value, given[0])

    cost = tuple(part for pair in operator.extra for part in pair)
    for place, step in enumerate(operator.steps):
        args = [ref(arg) for arg in step.args]
        is_last = place == len(operator.steps) - 1
        if step.function == AS_VALUE:
            made.append(b.cast(args[0], b.dtype(given[0])))
        elif is_last and cost:
            made.append(b.emit(PRIMITIVES[step.function], *args, cost=cost))
        else:
            made.append(b.emit(PRIMITIVES[step.function], *args))
    return made[-1]


def _operands(b: Builder, call: Call, operator: CustomOperator) -> list[Ref]:
    label = f"{operator.domain}::{operator.name}"
    given = [ref for ref in call.inputs if ref is not None]
    if len(given) != len(operator.inputs) or len(call.inputs) != len(given):
        raise InvalidModel(
            b.where,
            f"{label} takes {len(operator.inputs)} inputs, has {len(given)}",
            hint=f"its rule names them: {', '.join(operator.inputs)}",
        )
    if len(call.outputs) != 1:
        raise InvalidModel(b.where, f"{label} has one output", hint="drop the others")
    dtypes = {b.dtype(ref) for ref in given}
    if len(dtypes) > 1 or not dtypes <= set(operator.dtypes):
        raise InvalidModel(
            b.where,
            f"{label} cannot compute in {', '.join(sorted(dtypes))}",
            hint=f"its rule allows one of {', '.join(operator.dtypes)}",
        )
    if operator.shapes == "elementwise" and len({b.shape(ref) for ref in given}) > 1:
        raise InvalidModel(
            b.where,
            f"operands of {label} have different shapes",
            hint='pattern = "broadcast" in its rule lets them differ',
        )
    known = {name for name, _ in operator.attributes}
    unknown = sorted(set(call.attributes) - known)
    if unknown:
        raise InvalidModel(
            b.where,
            f"{label} has no attribute {unknown[0]!r}",
            hint=f"its rule names: {', '.join(sorted(known)) or 'none'}",
        )
    return given


def _number(call: Call, name: str, default: float) -> float:
    value = call.attributes.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidModel(
            call.proto.name or call.op, f"its attribute {name!r} is not a number"
        )
    return float(value)


def with_functions(model: onnx.ModelProto, rules: RuleSet) -> bytes:
    """The model as a library can run it: custom operators as functions of its own.

    Raises:
        UnsupportedModel: the model's opset is too old for that.
    """
    used = {(node.domain, node.op_type) for node in model.graph.node}
    own = {(function.domain, function.name) for function in model.functions}
    operators = [o for o in rules.operators if (o.domain, o.name) in used - own]
    if not operators:
        return bytes(model.SerializeToString())
    version = next(
        (e.version for e in model.opset_import if e.domain in ("", "ai.onnx")), 0
    )
    if version < _OLDEST_OPSET:
        raise UnsupportedModel(
            "model",
            f"custom operators need opset {_OLDEST_OPSET} or newer, it has {version}",
            hint="convert it with onnx.version_converter",
        )
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    changed.ir_version = max(changed.ir_version, 9)
    opset = helper.make_opsetid("", version)
    changed.functions.extend(_function(operator, opset) for operator in operators)
    return bytes(changed.SerializeToString())


def _function(
    operator: CustomOperator, opset: onnx.OperatorSetIdProto
) -> onnx.FunctionProto:
    body = _Body(operator)
    for place, step in enumerate(operator.steps):
        args = [body.name(arg) for arg in step.args]
        last = "result" if place == len(operator.steps) - 1 else f"s{place}"
        body.add(step.function, args, last)
    return helper.make_function(
        operator.domain,
        operator.name,
        [f"i{k}" for k in range(len(operator.inputs))],
        ["result"],
        body.nodes,
        [opset],
        attribute_protos=[
            helper.make_attribute(name, value) for name, value in operator.attributes
        ],
    )


class _Body:
    """The nodes of a function; literals take the type of the first operand."""

    def __init__(self, operator: CustomOperator) -> None:
        self._operator = operator
        self._names: dict[Arg, str] = {}
        self.nodes: list[onnx.NodeProto] = []

    def name(self, arg: Arg) -> str:
        """The tensor of an argument."""
        operands = len(self._operator.inputs)
        if isinstance(arg, Earlier):
            return f"s{arg.step}"
        if isinstance(arg, Operand) and arg.index < operands:
            return f"i{arg.index}"
        if arg not in self._names:
            self._names[arg] = f"n{len(self._names)}"
            self._constant(arg, self._names[arg], operands)
        return self._names[arg]

    def _constant(self, arg: Literal | Operand, name: str, operands: int) -> None:
        constant = onnx.NodeProto(op_type="Constant", output=[f"{name}_raw"])
        if isinstance(arg, Literal):
            # In double: a literal keeps its digits whatever the operands' type.
            tensor = helper.make_tensor("", TensorProto.DOUBLE, [], [arg.value])
            constant.attribute.append(helper.make_attribute("value", tensor))
        else:
            attribute = constant.attribute.add()
            attribute.name = "value_float"
            attribute.type = onnx.AttributeProto.FLOAT
            attribute.ref_attr_name = self._operator.attributes[arg.index - operands][0]
        self.nodes.append(constant)
        like = helper.make_node("CastLike", [f"{name}_raw", "i0"], [name])
        self.nodes.append(like)

    def add(self, function: str, args: list[str], output: str) -> None:
        """One function of the kernel language."""
        if function == AS_VALUE:
            self.nodes.append(helper.make_node("CastLike", [*args, "i0"], [output]))
        elif function == "floor_mod":
            ratio, whole, back = (f"{output}_{part}" for part in ("r", "w", "b"))
            self.nodes += [
                helper.make_node("Div", args, [ratio]),
                helper.make_node("Floor", [ratio], [whole]),
                helper.make_node("Mul", [whole, args[1]], [back]),
                helper.make_node("Sub", [args[0], back], [output]),
            ]
        else:
            spelled = _SPELLED.get(function, function.rstrip("_").capitalize())
            node = helper.make_node(spelled, args, [output])
            if function == "fmod":
                node.attribute.append(helper.make_attribute("fmod", 1))
            self.nodes.append(node)
