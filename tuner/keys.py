"""The plan key: what a plan is a plan of, and nothing else.

Equal keys mean equal questions. Each part is hashed apart, so that "same graph and
target, other toolchain" can be told from a miss.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cost_model.device import Device
from tuner.document import PLAN_SCHEMA, digest, encode, options_json
from tuner.plan import CODEGEN_REVISION, PRICE_REVISION, Options

COMPILERS: Final[Mapping[str, str]] = {
    "gpu": "nvrtc-13",
    "cpu": "opencl-3.0",
    "ideal": "none",
}
"""The compiler asked for, by kind of device, when the request names none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanKey:
    """A plan key and the hashes of its parts.

    Attributes:
        key: 64 hexadecimal digits.
        parts: hash of schema, graph, target, toolchain and options.
        target: id and digest of the device.
        toolchain: revisions of the code generator and of the prices, and compiler.
    """

    key: str
    parts: Mapping[str, str]
    target: Mapping[str, str]
    toolchain: Mapping[str, str | int]


def plan_key(fingerprint: str, device: Device, options: Options) -> PlanKey:
    """The key of a graph on a device under options. Needs no device and no compiler."""
    target = {"id": device.id, "digest": device.digest}
    toolchain: dict[str, str | int] = {
        "codegen_revision": CODEGEN_REVISION,
        "price_revision": PRICE_REVISION,
        "compiler": COMPILERS[device.kind],
    }
    question = {
        "schema": PLAN_SCHEMA,
        "graph": fingerprint,
        "target": target,
        "toolchain": toolchain,
        "options": options_json(options),
    }
    return PlanKey(
        key=digest(encode(question)),
        parts={name: digest(encode(part)) for name, part in question.items()},
        target=target,
        toolchain=toolchain,
    )
