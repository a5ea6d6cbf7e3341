"""A plan as a folder of files that need no Fuseplan: sources and a manifest."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from service.cli import lookups
from service.cli.exits import BadArgument, CacheMiss
from service.cli.inputs import settings, write_bytes
from service.store import blobs
from service.store.database import connect

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from service.cli.planning import Planned

EXPORT_SCHEMA: Final = "fuseplan.export/1"
_SUFFIX: Final = {"opencl": ".cl", "cuda": ".cu"}


@dataclass(frozen=True, kw_only=True)
class Package:
    """What is written: the manifest, and texts by digest."""

    manifest: Mapping[str, Any]
    texts: Mapping[str, str]


def of_planned(planned: Planned) -> Package:
    """A package of a plan that was just made, in the model's own names."""
    sources = [source for kernel in planned.plan.kernels for source in kernel.sources]
    launches = {
        kernel.name: {
            source.language: {
                "entry": source.entry,
                "arguments": [argument.tensor for argument in source.arguments],
                "grid": list(source.grid),
                "block": list(source.block),
                "shared_bytes": source.shared_bytes,
            }
            for source in kernel.sources
        }
        for kernel in planned.plan.kernels
    }
    manifest = {
        "schema": EXPORT_SCHEMA,
        "plan": {"plan_key": planned.prepared.key.key, **planned.stored},
        "names": {i: list(names) for i, names in planned.prepared.model.names.items()},
        "launches": launches,
    }
    return Package(manifest=manifest, texts={s.digest: s.text for s in sources})


def of_stored(key: str) -> Package:
    """A package of a plan that the database of this machine holds.

    Raises:
        CacheMiss: the plan, or a source that it names, is not stored.
    """
    found = lookups.find(key, "analytic", "")
    wanted = {d for kernel in found.body["kernels"] for d in kernel["sources"].values()}
    database = connect(settings().url)
    try:
        with database.read() as session:
            held = {digest: blobs.find(session, digest) for digest in sorted(wanted)}
    finally:
        database.close()
    missing = [digest for digest, blob in held.items() if blob is None]
    if missing:
        raise CacheMiss(missing[0], "a kernel source is not stored", hint="tune again")
    manifest = {
        "schema": EXPORT_SCHEMA,
        "plan": {"plan_key": key, **found.body},
        "names": {},
        "launches": {},
    }
    texts = {digest: blob.content.decode() for digest, blob in held.items() if blob}
    return Package(manifest=manifest, texts=texts)


def write(package: Package, folder: Path) -> list[str]:
    """Write a package; equal kernels share one file.

    Returns:
        Names of the files, relative to the folder.
    """
    try:
        (folder / "sources").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadArgument(
            str(folder), f"cannot be made: {error.strerror}", hint="choose another -o"
        ) from error
    files = _files(package)
    manifest = json.dumps({**package.manifest, "files": _index(package)}, indent=2)
    files["manifest.json"] = manifest + "\n"
    for name, text in files.items():
        write_bytes(folder / name, text.encode())
    return sorted(files)


def _index(package: Package) -> dict[str, dict[str, str]]:
    """Kernel -> language -> file."""
    return {
        kernel["name"]: {
            language: _name(language, digest)
            for language, digest in kernel["sources"].items()
        }
        for kernel in package.manifest["plan"]["kernels"]
    }


def _files(package: Package) -> dict[str, str]:
    pairs = {
        (language, digest)
        for kernel in package.manifest["plan"]["kernels"]
        for language, digest in kernel["sources"].items()
    }
    return {_name(lang, digest): package.texts[digest] for lang, digest in pairs}


def _name(language: str, digest: str) -> str:
    return f"sources/{digest[:16]}{_SUFFIX[language]}"
