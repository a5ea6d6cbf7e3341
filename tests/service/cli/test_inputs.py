"""From words to values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx.helper import make_graph, make_model, make_node, make_tensor_value_info
from onnx.numpy_helper import from_array

from service.cli import inputs
from service.cli.exits import BadArgument
from tests.service.cli.conftest import Fuseplan


def test_sizes_come_in_one_word_or_many() -> None:
    """`--shape a=1,b=2 --shape c=3` names three sizes."""
    assert inputs.sizes(["a=1,b=2", "c=3"]) == {"a": 1, "b": 2, "c": 3}


@pytest.mark.parametrize(
    "words",
    [["n=4,n=5"], ["n=4", "n=4"], ["n=4, n =5"], ["n=1..8,n=4"], ["n=4", "n=1..8"]],
)
def test_a_dimension_is_told_once(words: list[str]) -> None:
    """Of two sizes one would be lost unsaid, in whichever word they stand."""
    with pytest.raises(BadArgument, match="are about one dimension") as caught:
        inputs.sizes(inputs.ranges(words)[0])
    assert caught.value.hint == "say n once"


def test_an_option_is_told_once() -> None:
    """JSON may name it twice; what is meant is not known."""
    with pytest.raises(BadArgument, match="'n' twice"):
        inputs.json_object("--options", '{"shapes": {"n": 4, "n": 5}}')


@pytest.mark.parametrize("word", ["a", "a=", "=1", "a=x", "a=0", "a=-1", "a=1.5"])
def test_wrong_sizes_are_refused(word: str) -> None:
    """A size is a positive whole number."""
    with pytest.raises(BadArgument):
        inputs.sizes([word])


def test_keys_are_told_from_files() -> None:
    """64 lower-case hexadecimal digits are a key, anything else is a path."""
    assert inputs.is_key("0a" * 32)
    assert not inputs.is_key("0A" * 32)
    assert not inputs.is_key("model.onnx")


def test_json_is_told_from_onnx() -> None:
    """Graph JSON starts with a brace; an ONNX file never does."""
    assert inputs.form_of(b'  {"schema": 1}') == "json"
    assert inputs.form_of(b" " * 1000 + b"\r\n\t{") == "json"
    assert inputs.form_of(b"\xef\xbb\xbf{}") == "json"
    assert inputs.form_of(b"") == "onnx"
    assert inputs.form_of(b"\x08\x07\x12") == "onnx"


def test_files_are_written_whole(tmp_path: Path) -> None:
    """A failed write leaves nothing behind, neither file nor draft."""
    target = tmp_path / "there" / "file"
    with pytest.raises(BadArgument):
        inputs.write_bytes(target, b"x")
    target.parent.mkdir()
    inputs.write_bytes(target, b"x")
    assert [path.name for path in target.parent.iterdir()] == ["file"]


@pytest.mark.parametrize("text", ["[1]", "1", "{", ""])
def test_options_are_objects(text: str) -> None:
    """Anything but a JSON object is refused."""
    with pytest.raises(BadArgument):
        inputs.json_object("--options", text)


def test_a_device_file_is_a_target(fuseplan: Fuseplan, model: Path) -> None:
    """A plan for a device of one's own has its id, its numbers and its own key."""
    file = model.with_name("mine.toml")
    file.write_text('base = "h100"\nid = "my-card"\nlaunch_seconds = 5e-4\n')
    ours = fuseplan("plan", model, "--target", file, "--json")
    base = fuseplan("plan", model, "--target", "h100", "--json")
    assert ours.json["target"]["id"] == "my-card"
    assert ours.json["plan_key"] != base.json["plan_key"]
    assert ours.json["objective_seconds"] > 5e-4 > base.json["objective_seconds"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = ", "is not TOML"),
        ('base = "h100"\n', "'h100-sxm' is a device of the catalogue"),
        ('base = "h100"\nid = "x"\ncores = 3\n', "cores: is no field of a device"),
        ('base = "h100"\nid = "x"\nlaunch_seconds = 9\n', "launch_seconds: 9"),
        ('id = "x"\n', "is missing"),
        (None, "cannot be read"),
    ],
)
def test_wrong_device_files_are_refused(
    text: str | None, said: str, fuseplan: Fuseplan, model: Path
) -> None:
    """The message names the file, the field and what is wrong with it."""
    file = model.with_name("mine.toml")
    if text is not None:
        file.write_text(text)
    ended = fuseplan("plan", model, "--target", file)
    assert ended.code == 2
    assert str(file) in ended.err
    assert said in ended.err


@pytest.mark.parametrize(
    ("data", "code", "said"),
    [
        (b"", 4, "is empty"),
        (b"no model", 4, "not a whole ONNX model"),
        (b"{", 4, "is not JSON"),
        (b"{}", 4, "$.schema"),
    ],
)
def test_the_file_of_a_wrong_model_is_named(
    data: bytes, code: int, said: str, fuseplan: Fuseplan, tmp_path: Path
) -> None:
    """Among several models of one command the user sees which one is meant."""
    file = tmp_path / 'a "b" ü.onnx'
    file.write_bytes(data)
    for words in (("plan", file), ("plan", file, "--shape", "n=1..4")):
        ended = fuseplan(*words)
        assert ended.code == code
        assert f"fuseplan: {file}: " in ended.err
        assert said in ended.err


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("nonsense", "is no address of a database"),
        ("mysql://user:word@host/x", "mysql databases cannot be used"),
        ("postgresql+nope://host/x", "postgresql+nope databases"),
    ],
)
def test_addresses_of_no_database_are_refused(
    url: str, said: str, fuseplan: Fuseplan
) -> None:
    """What SQLAlchemy would stumble over is a wrong argument, and no secret is told."""
    ended = fuseplan("serve", "--port", "0", "--database-url", url)
    assert ended.code == 2
    assert said in ended.err
    assert "word" not in ended.err


def test_strip_refuses_what_it_cannot_keep(fuseplan: Fuseplan, tmp_path: Path) -> None:
    """A tensor that is not there, and an output without a name, are wrong arguments."""
    file = tmp_path / "m.onnx"
    weight = from_array(np.zeros((64, 64), np.float32), "w")
    graph = make_graph(
        [make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [make_tensor_value_info("x", 1, [8, 64])],
        [make_tensor_value_info("y", 1, [8, 64])],
        [weight],
    )
    file.write_bytes(make_model(graph).SerializeToString())
    light = tmp_path / "light.onnx"
    wrong = fuseplan("strip", file, "-o", light, "--keep", "v")
    assert wrong.code == 2
    assert "v: the model holds no values" in wrong.err
    assert not light.exists()
    assert fuseplan("strip", file, "-o", light, "--keep", "w").code == 0
    assert fuseplan("strip", file, "-o", "").code == 2


def test_two_names_of_one_node_are_no_question(fuseplan: Fuseplan, model: Path) -> None:
    """`explain` asks for two nodes: one alone has no other choice."""
    node = fuseplan("plan", model, "--json").json["kernels"][0]["nodes"][0]
    node = node if isinstance(node, str) else node["name"]
    ended = fuseplan("explain", model, node, node)
    assert ended.code == 2
    assert "name two nodes" in ended.err
