"""Operators of a user's own: from a rule to primitives, kernels and a reference."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper

from tests.conftest import SOAK
from tuner.errors import InvalidModel, InvalidOption, UnsupportedModel
from tuner.frontend.custom import PRIMITIVES
from tuner.frontend.onnx import read_onnx
from tuner.frontend.rulefile import PATTERNS, read_rules
from tuner.ir.custom import INTEGERS, CustomOperator, RuleSet
from tuner.ir.expr import FUNCTIONS
from tuner.ir.interpreter import evaluate
from tuner.model import Model, load
from tuner.pipeline import make_plan, plan_key
from tuner.plan import Options

GATE = CustomOperator(
    domain="com.acme",
    name="Gate",
    inputs=("x", "gate"),
    attributes=(("beta", 1.5),),
    expression="where(x > 0, x, 0.1 * x) * gate / (1 + exp(-beta * gate)) + (x > gate)",
)


def _model(
    operator: CustomOperator,
    shapes: list[list[Any]],
    *,
    dtype: int = onnx.TensorProto.FLOAT,
    opset: int = 18,
    **attributes: object,
) -> bytes:
    """One node with the operator, named `own`."""
    names = [f"v{k}" for k in range(len(shapes))]
    node = helper.make_node(
        operator.name, names, ["y"], domain=operator.domain, name="own", **attributes
    )
    graph = helper.make_graph(
        [node],
        "g",
        [
            helper.make_tensor_value_info(name, dtype, shape)
            for name, shape in zip(names, shapes, strict=True)
        ],
        [helper.make_tensor_value_info("y", dtype, None)],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(operator.domain, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return bytes(model.SerializeToString())


def _loaded(operator: CustomOperator, data: bytes) -> Model:
    return load(data, rules=RuleSet(operators=(operator,)))


def _feeds(model: Model, seed: int) -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    kinds = {n: model.imported.graph.types[n] for n in model.imported.graph.inputs}
    return {
        name: rng.uniform(0.1, 0.9, kind.static_shape).astype(kind.dtype.numpy)
        for name, kind in kinds.items()
    }


def _both(model: Model, seed: int = 0) -> tuple[np.ndarray[Any, Any], ...]:
    """What the interpreter says, and what ONNX Runtime says of the model's function."""
    feeds = _feeds(model, seed)
    ours = evaluate(model.imported.graph, feeds, precision="float64")["y"]
    session = ort.InferenceSession(model.imported.onnx)
    return ours, np.asarray(session.run(None, feeds)[0])


@pytest.mark.parametrize("beta", [None, 0.5])
def test_an_operator_means_what_its_expression_says(beta: float | None) -> None:
    """Interpreter and ONNX Runtime agree with NumPy; an attribute beats its default."""
    given = {} if beta is None else {"beta": beta}
    model = _loaded(GATE, _model(GATE, [[4, 8], [1, 8]], **given))
    ours, theirs = _both(model)
    x, gate = _feeds(model, 0).values()
    swish = np.where(x > 0, x, 0.1 * x) * gate / (1 + np.exp(-(beta or 1.5) * gate))
    np.testing.assert_allclose(ours, swish + (x > gate), rtol=1e-6)
    np.testing.assert_allclose(theirs, ours, rtol=1e-5)


FLOAT_FUNCTIONS = sorted(set(FUNCTIONS) - INTEGERS - {"and_", "or_", "xor_", "not_"})


@pytest.mark.parametrize("name", FLOAT_FUNCTIONS)
def test_every_function_has_a_primitive_and_an_onnx_form(name: str) -> None:
    """Each function of the kernel language computes the same here and in a library."""
    arity = FUNCTIONS[name].arity
    inputs = tuple(f"v{k}" for k in range(arity))
    first = f"{inputs[0]} > 0.5" if name == "where" else inputs[0]
    first = f"1 + {first}" if name == "acosh" else first
    text = f"{name}({', '.join([first, *inputs[1:]])})"
    operator = CustomOperator(domain="a.b", name="F", inputs=inputs, expression=text)
    ours, theirs = _both(_loaded(operator, _model(operator, [[32]] * arity)))
    np.testing.assert_allclose(theirs, ours, rtol=2e-5, atol=1e-6)
    assert PRIMITIVES[name]


@pytest.mark.parametrize(
    ("text", "mean"),
    [
        ("and_(x > 0.2, x < 0.8)", lambda x: (x > 0.2) & (x < 0.8)),
        ("or_(x < 0.2, not_(x < 0.8)) * x", lambda x: ((x < 0.2) | (x >= 0.8)) * x),
        ("xor_(x > 0.3, x > 0.6) - x", lambda x: ((x > 0.3) ^ (x > 0.6)) - x),
        ("sqrt(2) * x", lambda x: np.sqrt(2) * x),
        ("x * x + x * x", lambda x: 2 * x * x),
    ],
)
def test_truth_values_count_as_numbers(
    text: str, mean: Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]
) -> None:
    """A truth value where a number is wanted is 0 or 1, here and in a library."""
    operator = CustomOperator(domain="a.b", name="T", inputs=("x",), expression=text)
    model = _loaded(operator, _model(operator, [[64]]))
    ours, theirs = _both(model)
    (x,) = _feeds(model, 0).values()
    np.testing.assert_allclose(ours, mean(x), rtol=1e-6)
    np.testing.assert_allclose(theirs, ours, rtol=1e-5)


def test_a_custom_operator_is_one_node_of_the_users_in_kernels_of_both_languages() -> (
    None
):
    """It keeps its name, is one fused kernel, and is written in OpenCL and CUDA."""
    model = _loaded(GATE, _model(GATE, [[64, 128], [64, 128]]))
    rules = RuleSet(operators=(GATE,))
    plan = make_plan(model, "sm_90", Options(rules=rules))
    (kernel,) = plan.kernels
    assert {n for i in kernel.region.nodes for n in model.names[i]} == {"own"}
    texts = {source.language: source.text for source in kernel.sources}
    assert "expf(" in texts["cuda"]
    assert "exp(" in texts["opencl"]


def test_a_stated_cost_is_in_the_price_and_in_the_identity() -> None:
    """Stated operations replace the counted ones; the plan is another plan."""
    seconds, keys = [], []
    for cost in ((), (("fma32", 4000.0),), (("fma32", 8000.0),)):
        operator = CustomOperator(
            domain="a.b", name="C", inputs=("x",), expression="x * x", cost=cost
        )
        model = _loaded(operator, _model(operator, [[1024, 1024]]))
        options = Options(rules=RuleSet(operators=(operator,)))
        plan = make_plan(model, "sm_90", options)
        seconds.append(plan.kernels[0].estimate.compute_seconds)
        keys.append(plan_key(model, "sm_90", options).key)
    assert seconds[0] < seconds[1]
    assert seconds[2] == pytest.approx(2 * seconds[1], rel=0.05)
    assert len(set(keys)) == 3


def test_without_rules_the_key_is_what_it_was() -> None:
    """An empty rule set leaves no trace; rules are in the key whatever their order."""
    data = _model(GATE, [[8], [8]])
    other = CustomOperator(domain="a.b", name="O", inputs=("x",), expression="-x")
    model = _loaded(GATE, data)
    key = plan_key(model, "cpu", Options()).key
    assert plan_key(model, "cpu", Options(rules=RuleSet())).key == key
    one = RuleSet(operators=(GATE, other))
    two = RuleSet(operators=(other, GATE))
    assert one.digest == two.digest != RuleSet(operators=(GATE,)).digest
    with_rules = plan_key(model, "cpu", Options(rules=one))
    assert with_rules.key != key
    assert with_rules.key == plan_key(model, "cpu", Options(rules=two)).key


@pytest.mark.parametrize(
    ("operator", "shapes", "more", "message"),
    [
        (GATE, [[4]], {}, "takes 2 inputs, has 1"),
        (GATE, [[4], [4]], {"gamma": 1.0}, "no attribute 'gamma'"),
        (GATE, [[4], [4]], {"beta": "high"}, "'beta' is not a number"),
        (GATE, [[4], [5]], {}, "do not broadcast"),
        (GATE, [[4], [4]], {"dtype": onnx.TensorProto.INT64}, "cannot compute in i64"),
    ],
)
def test_a_node_that_breaks_its_rule_is_refused(
    operator: CustomOperator, shapes: list[list[int]], more: Any, message: str
) -> None:
    """The message names the node and what the rule says."""
    with pytest.raises(InvalidModel, match=message) as caught:
        _loaded(operator, _model(operator, shapes, **more))
    assert caught.value.where == "own"


def test_equal_shapes_are_asked_for_where_the_rule_says_so() -> None:
    """Pattern `elementwise` refuses what `broadcast` takes."""
    strict = CustomOperator(
        domain="a.b",
        name="S",
        inputs=("x", "y"),
        expression="x + y",
        shapes="elementwise",
    )
    with pytest.raises(InvalidModel, match="different shapes"):
        _loaded(strict, _model(strict, [[4, 8], [1, 8]]))
    assert _loaded(strict, _model(strict, [[4, 8], [4, 8]]))


def test_an_old_opset_is_refused() -> None:
    """A library could not run the operator for comparison."""
    with pytest.raises(UnsupportedModel, match="opset 15"):
        _loaded(GATE, _model(GATE, [[4], [4]], opset=13))


def test_a_models_own_function_of_the_same_name_wins() -> None:
    """What a model says of its operator itself is not replaced by a rule."""
    data = onnx.ModelProto.FromString(_model(GATE, [[8], [8]]))
    add = helper.make_node("Add", ["a", "b"], ["c"])
    opset = helper.make_opsetid("", 18)
    data.functions.append(
        helper.make_function("com.acme", "Gate", ["a", "b"], ["c"], [add], [opset])
    )
    model = _loaded(GATE, data.SerializeToString())
    assert [node.op for node in model.graph.nodes] == ["add"]


def test_symbolic_shapes_stay_symbolic() -> None:
    """Inference works before sizes are known."""
    data = _model(GATE, [["rows", 8], [1, 8]])
    found = read_onnx(data, rules=RuleSet(operators=(GATE,)))
    assert found.graph.types["y"].shape == ("rows", 8)


RULES = """\
# a comment
[[operator]]
domain = "com.acme"
name = "SwishGate"
inputs = ["x", "gate"]
attributes = { beta = 1.0 }
pattern = "broadcast"
expression = "x * gate / (1 + exp(-beta * gate))"
dtypes = ["f32"]
cost = { fma32 = 18, special = 2 }

[[operator]]
domain = "com.acme"
name = "Other"
inputs = ["x"]
expression = "-x"

[[fusion]]
name = "apart"
forbid = ["Softmax", "reduction"]
targets = ["sm_75"]
"""


def test_a_rule_file_says_what_it_says() -> None:
    """All keys arrive; the form in JSON is read back as the same rules."""
    rules = read_rules(RULES, "r.toml", targets={"sm_75"})
    assert [o.name for o in rules.operators] == ["SwishGate", "Other"]
    assert rules.operators[0].cost == (("fma32", 18.0), ("special", 2.0))
    assert rules.fusion[0].kinds == ("Softmax", "reduction")
    assert RuleSet.from_json(rules.as_json) == rules
    assert not RuleSet()


@pytest.mark.parametrize(
    ("old", "new", "line", "allowed"),
    [
        ("exp(", "exq(", 8, "acos"),
        ("-beta", "-betta", 8, "x, gate, beta"),
        ("* gate /", "* gate gate /", 8, "an expression of x, gate"),
        ("exp(-beta * gate)", "bit_not(gate)", 8, "floats"),
        ("exp(-beta * gate)", "not_(gate)", 8, "truth value"),
        ("x * gate", "x * x", 0, ""),
        ("exp(-beta * gate)", "gate.real", 8, "kernel language"),
        ('"com.acme"\nname = "Swish', '"ai.onnx"\nname = "Swish', 3, "of your own"),
        ('name = "Other"', 'name = "SwishGate"', 12, "drop one"),
        ('"broadcast"', '"rows"', 7, "elementwise, broadcast"),
        ('["f32"]', '["i8"]', 9, "f64, f32, f16, bf16"),
        ("fma32 = 18", "fma = 18", 10, "fma32"),
        ("fma32 = 18", "fma32 = -1", 10, "0 to 1e+06"),
        ("beta = 1.0", 'beta = "1"', 6, "default numbers"),
        ('["x", "gate"]', '["x", "exp"]', 5, "names that the expression uses"),
        ('inputs = ["x"]\n', "", 12, "names that the expression uses"),
        ('expression = "-x"', "", 12, "an expression of x"),
        ('"reduction"', '"reductions"', 20, PATTERNS[3]),
        ('"Softmax"', '"Sofmax"', 20, "an ONNX operator"),
        ('"Softmax", ', "", 20, "2 of"),
        ("forbid", "forbids", 20, "forbid, require, alone"),
        ('"sm_75"', '"sm_7"', 21, "sm_75"),
        ("[[fusion]]", "[[fuse]]", 18, "[[operator]] and [[fusion]]"),
        ("[[fusion]]", "[fusion]", 18, "[[fusion]]"),
        ('name = "apart"', 'name = ""', 19, "a name"),
        ('name = "apart"', "name = apart", 19, "docs/rules.md"),
    ],
)
def test_a_mistake_is_told_with_its_line_and_what_is_allowed(
    old: str, new: str, line: int, allowed: str
) -> None:
    """Every wrong value, name, key and table is found where it stands."""
    changed = RULES.replace(old, new, 1)
    assert changed != RULES
    if not line:
        assert read_rules(changed, "r.toml")
        return
    with pytest.raises(InvalidOption) as caught:
        read_rules(changed, "r.toml", targets={"sm_75"})
    text = str(caught.value)
    assert text.startswith(f"r.toml:{line}:") or f"line {line}" in text
    assert allowed in text


def test_deep_nesting_is_told() -> None:
    """An expression that nests thousands deep is refused, not followed."""
    for text in ("(" * 900 + "x" + ")" * 900, "-" * 1500 + "x", "x+" * 1500 + "x"):
        changed = RULES.replace('"-x"', f'"{text}"')
        with pytest.raises(InvalidOption, match=r"r\.toml:16"):
            read_rules(changed, "r.toml")


def test_damaged_rule_files_are_told_or_read() -> None:
    """Random edits give rules or an error that says where; never anything else."""
    rng = random.Random(1)
    letters = "abx0 1.-+*/()[]{}=,\"'\n#_:<>é\x00"
    told: list[InvalidOption] = []
    for _ in range(3000 if SOAK else 300):
        text = list(RULES)
        for _ in range(rng.randint(1, 3)):
            place = rng.randrange(len(text))
            text[place : place + rng.randint(0, 2)] = rng.choice(letters)
        try:
            read_rules("".join(text), "r.toml", targets={"sm_75"})
        except InvalidOption as error:
            told.append(error)
    assert told
    assert all(error.where.startswith("r.toml") and error.hint for error in told)
