"""Pre-tuned packs: kernel measurements and plans of one device, in one file.

A pack is one canonical JSON document under Zstandard: `schema`, `digest` of `content`,
`signature` of that digest or null, and `content`. It holds what a bundle holds, and
the kernel runs on which its plans rest, so that models that share kernels with them
start from measurements. What is loaded proves nothing by itself: a run of another
compiler, driver or code generator is never served, and a run that is served is
verified numerically before a plan rests on it.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import zstandard

from service import signing
from service.bundle import Unfolding
from service.bundle import pack as pack_bundle
from service.bundle import unpack as unpack_bundle
from service.cli.kernel_cache import stored
from service.errors import BadBundle
from service.jobs.bundling import Selection, collect, take_in
from service.store import kernels, measurements
from service.store.kernels import StoredKernel
from tuner import document
from tuner.plan import CODEGEN_REVISION
from tuner.search.records import usable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from service.bundle import Bundle
    from service.settings import Settings
    from service.store import Database

Json = dict[str, Any]
SCHEMA: Final = "fuseplan.pack/1"
_HINT: Final = "create the pack again"
_LEVEL: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Pack:
    """What a pack holds.

    Attributes:
        device: catalogue id of the target of all plans and kernel runs.
        codegen_revision: of the code generator that made them.
        runs: results of kernel runs by measurement key.
    """

    device: str
    codegen_revision: int
    bundle: Bundle
    runs: Mapping[str, Mapping[str, Any]]

    @property
    def is_stale(self) -> bool:
        """Whether another code generator made it: then nothing of it is served."""
        return self.codegen_revision != CODEGEN_REVISION

    def summary(self) -> Json:
        """What it holds, in numbers."""
        toolchains: dict[str, int] = {}
        for run in self.runs.values():
            name = str(run["toolchain"])
            toolchains[name] = toolchains.get(name, 0) + 1
        return {
            "schema": SCHEMA,
            "device": self.device,
            "codegen_revision": self.codegen_revision,
            "stale": self.is_stale,
            "plans": [
                {"key": plan.key, "evidence": plan.evidence, "seconds": plan.seconds}
                for plan in self.bundle.plans
            ],
            "kernels": len({run["kernel"] for run in self.runs.values()}),
            "measurements": len(self.runs),
            "toolchains": toolchains,
        }


def gather(
    database: Database, device: str, keys: Sequence[str], given: Settings
) -> Pack:
    """The measured plans of a device, and the runs of its kernels.

    Args:
        database: where to look.
        device: catalogue id of the target.
        keys: only these plans, and only runs of their kernels; empty means all.
        given: limits.

    Raises:
        PlanNotFound: a key that was asked for has no measured plan.
    """
    selection = Selection(
        keys=tuple(keys),
        target=device,
        least="measured",
        max_bytes=given.max_bundle_bytes,
    )
    bundle = collect(database, selection)
    with database.read() as session:
        until = measurements.last_id(session)
        known = measurements.known(session, device, until=until)
    wanted = _kernels(bundle) if keys else None
    return Pack(
        device=device,
        codegen_revision=CODEGEN_REVISION,
        bundle=bundle,
        runs={
            key: run
            for key, run in sorted(known.items())
            if _is_sound(run) and (wanted is None or run["kernel"] in wanted)
        },
    )


def _kernels(bundle: Bundle) -> set[str]:
    bodies = [json.loads(bundle.body(plan)) for plan in bundle.plans]
    return {kernel["fingerprint"] for body in bodies for kernel in body["kernels"]}


def _is_sound(run: Mapping[str, Any]) -> bool:
    """Whether a run could be served where its toolchain is."""
    return usable(run, str(run.get("toolchain"))) is not None and "kernel" in run


def write(pack: Pack, given: Settings) -> bytes:
    """The file of a pack; equal packs give equal bytes."""
    content = {
        "device": pack.device,
        "codegen_revision": pack.codegen_revision,
        "bundle": base64.b64encode(pack_bundle(pack.bundle)).decode(),
        "measurements": [
            {"key": key, "result": dict(run)} for key, run in pack.runs.items()
        ],
    }
    digest = document.digest(document.encode(content))
    signature = None
    if given.bundle_key is not None:
        signature = signing.sign(digest.encode(), given.bundle_key).decode()
    whole = {
        "schema": SCHEMA,
        "digest": digest,
        "signature": signature,
        "content": content,
    }
    packed: bytes = zstandard.ZstdCompressor(level=_LEVEL).compress(
        document.encode(whole)
    )
    return packed


def read(data: bytes, given: Settings) -> Pack:
    """Read a pack, trusting nothing of it.

    Raises:
        BadBundle: it is damaged, or no pack.
        BundleTooLarge: it unfolds to more than allowed.
        UntrustedBundle: keys are trusted, and none of them signed it.
    """
    whole = _document(_unfolded(data, given.max_bundle_bytes))
    content = whole["content"]
    if _digest(content) != whole.get("digest"):
        raise _bad("its digest is not that of its content")
    signed = whole.get("signature")
    trusted = signing.trusted_keys(given.bundle_trust)
    statement = signed.encode() if isinstance(signed, str) else None
    signing.check(statement, str(whole["digest"]).encode(), trusted)
    try:
        inner = base64.b64decode(content["bundle"], validate=True)
        return Pack(
            device=str(content["device"]),
            codegen_revision=int(content["codegen_revision"]),
            bundle=unpack_bundle(inner, max_bytes=given.max_bundle_bytes),
            runs={str(row["key"]): _run(row) for row in content["measurements"]},
        )
    except (binascii.Error, KeyError, TypeError, ValueError) as error:
        raise _bad(f"a part is missing or of another kind: {error!r}") from error


def _digest(content: Json) -> str:
    try:
        return document.digest(document.encode(content))
    except (TypeError, ValueError) as error:
        raise _bad(f"it holds what no canonical JSON can: {error}") from error


def _unfolded(data: bytes, max_bytes: int) -> bytes:
    try:
        return Unfolding(data, what="pack", max_bytes=max_bytes).read()
    except zstandard.ZstdError as error:
        raise _bad(f"it is not compressed by Zstandard: {error}") from error


def _document(found: bytes) -> Json:
    try:
        whole = json.loads(found)
    except (ValueError, RecursionError) as error:
        raise _bad(f"it is not JSON: {error}") from error
    schema = whole.get("schema") if isinstance(whole, dict) else None
    if schema != SCHEMA:
        raise _bad(f"its schema is {schema!r}, not {SCHEMA!r}")
    if not isinstance(whole.get("content"), dict):
        raise _bad("it has no content")
    return dict(whole)


def _run(row: Mapping[str, Any]) -> Mapping[str, Any]:
    run = row["result"]
    if not isinstance(run, dict) or not _is_sound(run) or not _has_schedule(run):
        raise _bad(f"the kernel run {row['key']!r} is damaged")
    return run


def _has_schedule(run: Mapping[str, Any]) -> bool:
    knobs = run.get("schedule")
    return isinstance(knobs, dict) and all(isinstance(v, int) for v in knobs.values())


def apply(pack: Pack, database: Database) -> Json:
    """Take plans over where they are better, and kernel runs that are new.

    Raises:
        BadBundle: a plan is not what its key says.
        BundleConflict: a key is stored with another meaning.
    """
    now = datetime.now(UTC)
    taken = take_in(database, pack.bundle, clock=lambda: now)
    with database.write() as session:
        until = measurements.last_id(session)
        held = measurements.known(session, pack.device, until=until)
        new = {key: run for key, run in pack.runs.items() if key not in held}
        kernels.put(session, [_kernel(run) for run in new.values()], now=now)
        rows = [stored(key, pack.device, dict(run)) for key, run in new.items()]
        measurements.add(session, rows, now=now)
    return {
        "plans": len(taken.keys),
        "plans_added": len(taken.added),
        "measurements": len(pack.runs),
        "measurements_added": len(new),
        "stale": pack.is_stale,
    }


def _kernel(run: Mapping[str, Any]) -> StoredKernel:
    name = str(run["kernel"])
    return StoredKernel(fingerprint=name, family=name.partition(":")[0])


def _bad(problem: str) -> BadBundle:
    return BadBundle("pack", problem, hint=_HINT)
