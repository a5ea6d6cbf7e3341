"""Plan options from the JSON that a request carries."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from tuner.errors import InvalidOption
from tuner.frontend.document import repeated_name
from tuner.plan import Options, Pin

_MAX_PINS: Final = 1000
_MAX_SHAPES: Final = 1000


class Closed(BaseModel):
    """An object with known names alone, of whose others the first is told.

    An error for each of millions would fill the memory.
    """

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _one_unknown(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        known = cls.model_fields
        first = next((name for name in given if name not in known), None)
        return {n: value for n, value in given.items() if n in known or n == first}


class PinOption(Closed):
    """A wish that two nodes share a kernel, or do not."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    fuse: bool
    nodes: Annotated[list[str], Field(min_length=2, max_length=2)]


class PlanOptions(Closed):
    """What may be asked of a plan; all of it is part of the plan key."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    objective: Literal["latency"] = "latency"
    launch_mode: Literal["stream", "graph"] = "stream"
    mode: Literal["inference", "training"] = "inference"
    exactness: Literal["strict", "relaxed"] = "strict"
    legality: Literal["reference", "full"] | None = Field(
        default=None, description="by default `reference` for `ideal`, else `full`"
    )
    memory_cap_bytes: Annotated[int, Field(gt=0)] | None = None
    pins: Annotated[list[PinOption], Field(max_length=_MAX_PINS, fail_fast=True)] = []
    shapes: Annotated[
        dict[str, Annotated[int, Field(ge=1, le=2**40)]],
        Field(max_length=_MAX_SHAPES, fail_fast=True),
    ] = {}


_SIZES: Final = (
    "one whole size for each dimension; for ranges such as 1..512 there is"
    " `fuseplan plan --shape seq=1..512`, and no request"
)


def _hint(place: tuple[int | str, ...]) -> str:
    """What to write in the place of an option that is refused."""
    if place[:1] == ("shapes",):
        return _SIZES
    return f"options: {', '.join(PlanOptions.model_fields)}"


class RepeatedName(ValueError):
    """An object has two values of one name, of which one would be lost unsaid."""


def decoded(text: str | bytes) -> Any:
    """The value of a JSON text in which no object has a name twice (RFC 8259, 4).

    Raises:
        RepeatedName: some object has.
        ValueError: it is not JSON.
        RecursionError: it is nested too deeply.
    """
    return json.loads(text, object_pairs_hook=_distinct)


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        msg = f"an object has the name {repeated_name(pairs)!r} twice"
        raise RepeatedName(msg)
    return found


def read_options(given: Mapping[str, Any], target: str) -> Options:
    """Options with their defaults; pins still name nodes as the user does.

    Raises:
        InvalidOption: an option is unknown, or has a value that it cannot have.
    """
    try:
        body = PlanOptions.model_validate(dict(given))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(("options", *map(str, first["loc"])))
        raise InvalidOption(where, first["msg"], hint=_hint(first["loc"])) from error
    return Options(
        objective=body.objective,
        launch_mode=body.launch_mode,
        mode=body.mode,
        exactness=body.exactness,
        legality=body.legality or ("reference" if target == "ideal" else "full"),
        memory_cap_bytes=body.memory_cap_bytes,
        pins=tuple(
            Pin(fuse=pin.fuse, nodes=(pin.nodes[0], pin.nodes[1])) for pin in body.pins
        ),
        shapes=MappingProxyType(dict(body.shapes)),
    )
