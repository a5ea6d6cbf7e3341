"""From words to values."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.cli import inputs
from service.cli.exits import BadArgument


def test_sizes_come_in_one_word_or_many() -> None:
    """`--shape a=1,b=2 --shape c=3` names three sizes; the last one wins."""
    assert inputs.sizes(["a=1,b=2", "c=3", "a=4"]) == {"a": 4, "b": 2, "c": 3}


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
