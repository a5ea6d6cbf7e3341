"""Rules and the memory cap from the command line, settings and packages."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import helper

from service.cli.exits import BadArgument
from service.cli.inputs import bytes_of
from service.jobs.registered import GROUP, registered
from tests.service.cli.conftest import Fuseplan
from tuner.errors import InvalidOption

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "rules" / "acme.toml"


def _value(name: str, shape: list[int] | None = None) -> onnx.ValueInfoProto:
    wanted = [64, 32] if shape is None else shape
    return helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, wanted)


@pytest.fixture
def custom(tmp_path: Path) -> Path:
    """A model with both operators of the example file, a softmax and a reduction."""
    nodes = [
        helper.make_node(
            "SwishGate", ["x", "g"], ["a"], domain="com.acme", name="gate"
        ),
        helper.make_node("Add", ["a", "x"], ["b"], name="sum"),
        helper.make_node(
            "HardClip", ["b"], ["c"], domain="com.acme", name="clip", high=2.0
        ),
        helper.make_node("Softmax", ["c"], ["d"], name="soft"),
        helper.make_node("ReduceMax", ["d"], ["y"], name="peak", axes=[1]),
    ]
    graph = helper.make_graph(
        nodes, "g", [_value("x"), _value("g")], [_value("y", [64, 1])]
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.acme", 1)]
    path = tmp_path / "custom.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def test_the_example_plans_and_runs(fuseplan: Fuseplan, custom: Path) -> None:
    """The file of docs/rules.md: the gate alone, the clip with its addition."""
    ended = fuseplan("plan", custom, "-t", "sm_75", "--rules", EXAMPLE, "--json")
    assert ended.code == 0, ended.err
    groups = [set(kernel["nodes"]) for kernel in ended.json["kernels"]]
    assert {"gate"} in groups
    assert any({"sum", "clip"} <= group for group in groups)
    assert not any({"soft", "peak"} <= group for group in groups)
    assert ended.json["options"]["rules"] == registered(more=[EXAMPLE]).digest


def test_rules_of_the_settings_hold_for_every_command(
    fuseplan: Fuseplan, custom: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With FUSEPLAN_RULES the key is that of --rules, and a run is verified."""
    by_option = fuseplan("plan", custom, "--rules", EXAMPLE, "--json").json
    monkeypatch.setenv("FUSEPLAN_RULES", str(EXAMPLE))
    by_setting = fuseplan("plan", custom, "--json").json
    assert by_setting["plan_key"] == by_option["plan_key"]
    ran = fuseplan("run", custom, "--device", "cpu", "--verify", "--json")
    assert ran.code == 0, ran.err
    assert ran.json["verified"]


def test_a_mistake_ends_with_two(
    fuseplan: Fuseplan, custom: Path, tmp_path: Path
) -> None:
    """The message has file, line and what is allowed; a missing file is told too."""
    wrong = tmp_path / "wrong.toml"
    wrong.write_text(EXAMPLE.read_text().replace("exp(", "exq("))
    ended = fuseplan("plan", custom, "--rules", wrong)
    assert ended.code == 2
    assert f"{wrong}:9: expression" in ended.err
    assert "acosh" in ended.err
    assert fuseplan("plan", custom, "--rules", tmp_path / "none.toml").code == 2
    wrong.write_bytes(b"\xff\xfe")
    assert fuseplan("plan", custom, "--rules", wrong).code == 2


def test_without_its_rule_the_operator_is_unknown(
    fuseplan: Fuseplan, custom: Path
) -> None:
    """The model is refused, and the node is named."""
    ended = fuseplan("plan", custom)
    assert ended.code == 4
    assert "gate" in ended.err
    assert "rule file" in ended.err


TABLE = """{
    "operator": [
        {"domain": "a.b", "name": "F", "inputs": ["x"], "expression": "-x"}
    ]
}"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Puts a package on the path whose entry point is what a line of Python gives."""

    def installed(line: str) -> None:
        (tmp_path / "acme_rules.py").write_text(
            f"from pathlib import Path\nTABLE = {TABLE}\nRULES = {line}\n"
        )
        info = tmp_path / "acme_rules-1.0.dist-info"
        info.mkdir()
        head = "Metadata-Version: 2.1\nName: acme-rules\nVersion: 1.0\n"
        (info / "METADATA").write_text(head)
        points = f"[{GROUP}]\nacme = acme_rules:RULES\n"
        (info / "entry_points.txt").write_text(points)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, "acme_rules", raising=False)

    return installed


@pytest.mark.parametrize(
    "line",
    [
        f"Path({str(EXAMPLE)!r})",
        repr(EXAMPLE.read_text()),
        "TABLE",
        "lambda: TABLE",
    ],
    ids=["path", "text", "dict", "function"],
)
def test_installed_packages_register_rules(
    line: str, install: Callable[[str], None]
) -> None:
    """TOML text, a path, a dict and a function that gives one are taken."""
    assert not registered()
    install(line)
    assert registered().operators


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1 / 0", "ZeroDivisionError"),
        ("7", "gives int"),
        ('{"operator": [{"domain": "a"}]}', "inputs are missing"),
        ('{"operator": 3}', "not a table"),
    ],
)
def test_a_package_that_gives_something_else_is_named(
    line: str, message: str, install: Callable[[str], None]
) -> None:
    """The error says which entry point, and what it should give."""
    install(line)
    with pytest.raises(InvalidOption, match=message) as caught:
        registered()
    assert "entry point acme" in str(caught.value)


def test_two_files_may_not_disagree(tmp_path: Path) -> None:
    """The same rule twice is one; two meanings of one operator are refused."""
    other = tmp_path / "other.toml"
    other.write_text(EXAMPLE.read_text())
    once = registered(more=[EXAMPLE])
    assert len(registered(more=[EXAMPLE, other]).operators) == len(once.operators)
    other.write_text(EXAMPLE.read_text().replace("1 + exp", "2 + exp"))
    with pytest.raises(InvalidOption, match="differently"):
        registered(str(EXAMPLE), more=[other])


@pytest.mark.parametrize(
    ("word", "count"),
    [("4096", 4096), ("512MiB", 512 << 20), ("1.5 GiB", 3 << 29), ("2kb", 2000)],
)
def test_sizes_are_read(word: str, count: int) -> None:
    """Binary and decimal units, whatever their case."""
    assert bytes_of("--memory-cap", word) == count


@pytest.mark.parametrize("word", ["", "MiB", "-5", "5 parsecs", "0", "1e9", "0.1"])
def test_what_is_no_size_is_refused(word: str) -> None:
    """The message names the option."""
    with pytest.raises(BadArgument, match="--memory-cap"):
        bytes_of("--memory-cap", word)


def test_the_memory_cap_is_kept_and_is_in_the_key(
    fuseplan: Fuseplan, model: Path
) -> None:
    """As an option and in the options object it is the same question."""
    free = fuseplan("plan", model, "--json").json
    capped = fuseplan("plan", model, "--memory-cap", "1GiB", "--json").json
    options = '{"memory_cap_bytes": 1073741824}'
    same = fuseplan("plan", model, "--options", options, "--json").json
    assert capped["plan_key"] == same["plan_key"] != free["plan_key"]
    assert capped["kernels"] == free["kernels"]
    ended = fuseplan("plan", model, "--memory-cap", "1")
    assert ended.code == 8
    assert "least found takes" in ended.err
