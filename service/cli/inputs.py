"""From the words on the command line to the values that the tuner takes."""

from __future__ import annotations

import codecs
import errno
import os
import re
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from service.cli.exits import BadArgument

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from cost_model.device import Device
    from service.jobs.planning import Prepared
    from service.settings import Settings
    from service.store import Database

KEY_DIGITS: Final = 64


def is_key(text: str) -> bool:
    """Whether the word is a plan key: 64 lower-case hexadecimal digits."""
    return len(text) == KEY_DIGITS and set(text) <= set("0123456789abcdef")


def read_bytes(path: Path, what: str = "model") -> bytes:
    """The bytes of a file, or of standard input for `-`.

    Args:
        path: the file.
        what: what it should be, for the message.

    Raises:
        BadArgument: the file is not there or cannot be read.
    """
    if str(path) == "-":
        return sys.stdin.buffer.read()
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadArgument(
            str(path), f"cannot be read: {error.strerror}", hint=f"give a {what} file"
        ) from error


def require_models(paths: Iterable[Path]) -> None:
    """Refuse files that are not there before the first of them is worked on.

    Raises:
        BadArgument: one is not there, is a folder, or cannot be read.
    """
    for path in paths:
        if str(path) != "-" and (problem := _unreadable(path)):
            raise BadArgument(
                str(path),
                f"cannot be read: {os.strerror(problem)}",
                hint="give a model file",
            )


def _unreadable(path: Path) -> int:
    """The system's number of what is wrong with a file; 0 when nothing is."""
    if not path.exists():
        return errno.ENOENT
    if path.is_dir():
        return errno.EISDIR
    return 0 if os.access(path, os.R_OK) else errno.EACCES


def require_place(path: Path, option: str = "-o", *, folder: bool = False) -> None:
    """Refuse a place that cannot be written before there is anything to write.

    Args:
        path: a file in a folder that is there; or a folder, which may be made.
        option: what to change.
        folder: whether the place is a folder.

    Raises:
        BadArgument: there is no such folder, or it cannot be written.
    """
    hint = f"choose another {option}"
    if not folder:
        if not path.name:
            raise BadArgument(
                f"'{path}'", "names no file that could be written", hint=hint
            )
        if path.is_dir():
            raise BadArgument(str(path), "is a folder, not a file", hint=hint)
        if not path.parent.exists():
            raise BadArgument(
                str(path), f"there is no folder {path.parent}", hint="make it first"
            )
    above = path if folder else path.parent
    while not above.exists() and above != above.parent:
        above = above.parent
    if not above.is_dir():
        raise BadArgument(str(path), f"{above} is no folder", hint=hint)
    if not os.access(above, os.W_OK | os.X_OK):
        raise BadArgument(str(path), f"{above} cannot be written", hint=hint)


def model_bytes(path: Path) -> bytes:
    """The bytes of a model, with those of its tensors that lie in files beside it.

    Raises:
        BadArgument: the file is not there or cannot be read.
        InvalidModel: a file beside it cannot be what the model says.
    """
    data = read_bytes(path)
    if str(path) == "-" or b"location" not in data:
        return data

    from tuner.frontend.external import gather

    return gather(data, path.resolve().parent)


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file whole or not at all.

    Raises:
        BadArgument: the place cannot be written.
    """
    require_place(path)
    draft = path.with_name(path.name + ".part")
    try:
        draft.write_bytes(data)
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise BadArgument(
            str(path), f"cannot be written: {error.strerror}", hint="choose another -o"
        ) from error


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Errors about "the model" say which file it is."""
    from tuner.errors import TunerError

    try:
        yield
    except TunerError as error:
        if error.where == "model":
            error.where = str(path)
        elif error.where.startswith("$"):
            error.where = f"{path}: {error.where}"
        raise


def form_of(data: bytes) -> Literal["onnx", "json"]:
    """Which of the two model forms the bytes have; JSON starts with a brace."""
    text = data.removeprefix(codecs.BOM_UTF8).lstrip()
    return "json" if text[:1] == b"{" else "onnx"


def sizes(words: Iterable[str]) -> dict[str, int]:
    """Dimension sizes from words such as `batch=1,seq=64`.

    Raises:
        BadArgument: a word is not NAME=SIZE with a positive whole size.
    """
    found: dict[str, int] = {}
    for word in _words(words):
        name, sign, number = word.partition("=")
        if not (sign and name and number.strip().isdecimal() and int(number) > 0):
            raise BadArgument(
                "--shape", f"{word!r} is not NAME=SIZE", hint="--shape batch=1,seq=64"
            )
        found[name.strip()] = int(number)
    return found


def _words(texts: Iterable[str]) -> list[str]:
    """The words of `--shape` one by one.

    Raises:
        BadArgument: two of them speak of one dimension.
    """
    words = [part for text in texts for part in text.split(",") if part]
    seen: dict[str, str] = {}
    for word in words:
        name = word.partition("=")[0].strip()
        if name in seen:
            raise BadArgument(
                "--shape",
                f"{seen[name]!r} and {word!r} are about one dimension",
                hint=f"say {name} once",
            )
        seen[name] = word
    return words


def ranges(words: Iterable[str]) -> tuple[list[str], dict[str, tuple[int, int]]]:
    """Words of `--shape` apart: those with one size, and ranges such as `seq=1..512`.

    Raises:
        BadArgument: a range does not go from a positive size to a greater one.
    """
    fixed: list[str] = []
    found: dict[str, tuple[int, int]] = {}
    for word in _words(words):
        name, _, ends = word.partition("=")
        if ".." not in ends:
            fixed.append(word)
            continue
        match = re.fullmatch(r"\s*([0-9]{1,12})\.\.([0-9]{1,12})\s*", ends)
        if not name.strip() or match is None or not 0 < int(match[1]) <= int(match[2]):
            raise BadArgument(
                "--shape",
                f"{word!r} is no range of sizes",
                hint="--shape batch=1..8,seq=1..512",
            )
        found[name.strip()] = (int(match[1]), int(match[2]))
    return fixed, found


def plan_body(path: Path) -> Mapping[str, Any]:
    """The plan body in a file.

    Raises:
        BadArgument: the file cannot be read, or holds no JSON object.
    """
    text = read_bytes(path, "plan").decode(errors="replace")
    return json_object("--plan", text)


def json_object(option: str, text: str) -> Mapping[str, Any]:
    """A JSON object from an option's text.

    Raises:
        BadArgument: the text is not a JSON object.
    """
    from service.jobs.options import RepeatedName, decoded

    try:
        value = decoded(text)
    except RepeatedName as error:
        raise BadArgument(option, str(error), hint="give each name once") from error
    except (ValueError, RecursionError) as error:
        raise BadArgument(
            option, f"is not JSON: {error}", hint="give a JSON object"
        ) from error
    if not isinstance(value, dict):
        raise BadArgument(option, "must be a JSON object", hint=f"{option} '{{}}'")
    return value


_UNITS: Final = {
    "": 1,
    "B": 1,
    **{f"{letter}iB": 1 << 10 * n for n, letter in enumerate("KMGT", start=1)},
    **{f"{letter}B": 1000**n for n, letter in enumerate("KMGT", start=1)},
}


def bytes_of(option: str, word: str) -> int:
    """A number of bytes from a word such as `512MiB`, `1.5GB` or `4096`.

    Raises:
        BadArgument: it is none, or not positive.
    """
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([A-Za-z]*)", word.strip())
    units = {unit.lower(): size for unit, size in _UNITS.items()}
    if match is None or match[2].lower() not in units:
        known = ", ".join(unit for unit in _UNITS if unit)
        raise BadArgument(
            option, f"{word!r} is no number of bytes", hint=f"512MiB; units: {known}"
        )
    count = int(float(match[1]) * units[match[2].lower()])
    if count < 1:
        raise BadArgument(option, "must be at least one byte", hint=f"{option} 512MiB")
    return count


def read_model(
    path: Path,
    target: str,
    shape: Iterable[str],
    given: Mapping[str, Any],
    rules: Iterable[Path] = (),
) -> Prepared:
    """The model of a file, with every dimension bound and its plan key.

    Args:
        path: model file, or `-`.
        target: device that the plan is for; it decides the default rule set. With
            `@` and digits it is a stored calibration of that device; ending in `.toml`
            it is a file that describes one.
        shape: words of `--shape`; they win over `shapes` of the options.
        given: the options object.
        rules: files of `--rules`, beside those that the settings name.
    """
    from service.jobs.planning import Planner, Question
    from service.jobs.registered import registered

    options = with_sizes(given, sizes(shape))
    own = device_of(target) if is_own(target) else None
    base = target if own is None else stand_in(target, own)
    planner = Planner(plan_seconds=1.0, rules=registered(settings().rules, rules))
    asked = Question(data=b"", form="json", target=base, options=options)
    planner.options(asked)  # what is wrong with them is told before a file is read
    data = model_bytes(path)
    with named(path):
        prepared = planner.prepare(replace(asked, data=data, form=form_of(data)))
    return prepared if own is None else _moved(prepared, own)


def with_sizes(given: Mapping[str, Any], said: Mapping[str, int]) -> dict[str, Any]:
    """The options object with the sizes of `--shape`, which win over its own.

    What is no object of sizes is left as it is: reading the options refuses it.
    """
    shapes = given.get("shapes", {})
    if not said or not isinstance(shapes, dict):
        return dict(given)
    return {**given, "shapes": {**shapes, **said}}


def is_own(target: str) -> bool:
    """Whether a target is none of the catalogue: a calibration, or a device file."""
    return "@" in target or target.endswith(".toml")


def stand_in(target: str, own: Device) -> str:
    """The catalogue's device whose defaults a target that is not in it has."""
    if not target.endswith(".toml"):
        from cost_model.device import base_of

        return base_of(target)
    return "cpu" if own.kind == "cpu" else "h100-sxm"


def _moved(prepared: Prepared, device: Device) -> Prepared:
    """The same question for a device that is not in the catalogue."""
    from tuner import pipeline

    key = pipeline.plan_key(prepared.model, device, prepared.options)
    return replace(prepared, device=device, key=key)


def device_of(target: str) -> Device:
    """A device of the catalogue, of a file, or with a stored calibration's numbers.

    Raises:
        UnknownTarget: there is no such device, or no such calibration.
        BadArgument: a device file cannot be read, or describes no device.
    """
    if target.endswith(".toml"):
        return _described(Path(target))

    from service.jobs import calibrated
    from tuner import pipeline

    if not calibrated.is_calibrated(target):
        return pipeline.resolve_target(target)
    with own_database() as database, database.read() as session:
        return calibrated.stored(session, target)


def _described(path: Path) -> Device:
    """The device of a file; it must not pass for one of the catalogue."""
    from cost_model.catalog import ALIASES, DEVICES
    from cost_model.device_file import InvalidDevice, load_device

    hint = "docs/cost-model.md describes device files"
    try:
        device = load_device(read_bytes(path, "device").decode())
    except UnicodeDecodeError as error:
        raise BadArgument(str(path), "is not UTF-8 text", hint=hint) from error
    except InvalidDevice as error:
        raise BadArgument(str(path), str(error), hint=hint) from error
    if device.id in {*DEVICES, *ALIASES}:
        raise BadArgument(
            str(path),
            f"id: {device.id!r} is a device of the catalogue",
            hint='give this one a name of its own: id = "my-card"',
        )
    return device


def settings(**given: object) -> Settings:
    """Settings from the environment, with what the command line says on top.

    Raises:
        BadArgument: a variable holds a value that it cannot have.
    """
    from pydantic import ValidationError

    from service.settings import Settings

    said = {name: value for name, value in given.items() if value is not None}
    try:
        return Settings(**said)  # type: ignore[arg-type]
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        raise BadArgument(
            name,
            first["msg"].removeprefix("Value error, "),
            hint="correct the option or FUSEPLAN_ variable",
        ) from error


def log_file() -> Path:
    """Where details of unexpected errors go, whatever the settings say."""
    try:
        return settings().log_file
    except BadArgument:
        return Path.home() / ".local" / "state" / "fuseplan" / "fuseplan.log"


@contextmanager
def own_database() -> Iterator[Database]:
    """This machine's database, with its tables up to date."""
    from service.store import connect, schema

    given = settings()
    schema.upgrade(given.url, busy_timeout_seconds=given.busy_timeout_seconds)
    database = connect(given.url, busy_timeout_seconds=given.busy_timeout_seconds)
    try:
        yield database
    finally:
        database.close()
