"""The supply list of a release: `python -m release.supply` writes both of its forms.

`THIRD_PARTY.md` is for people, `dist/fuseplan.cdx.json` (CycloneDX 1.6) for machines.
Names, versions and digests come from `requirements.lock` and from the sums of the
vendored scripts, licences from the installed packages. Equal input gives equal bytes.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageMetadata, distribution
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
LOCK: Final = ROOT / "requirements.lock"
TABLE: Final = ROOT / "THIRD_PARTY.md"
BOM: Final = ROOT / "dist" / "fuseplan.cdx.json"
VENDORED: Final = ROOT / "service" / "dashboard" / "static" / "vendor"

_SPDX: Final[Mapping[str, str]] = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache Software License": "Apache-2.0",
    "Apache Software License; MIT License": "Apache-2.0 OR MIT",
    "BSD License": "BSD-3-Clause",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}
"""Trove classifiers, as older packages have them, in SPDX' words."""

_TERMS: Final[Mapping[str, str]] = {
    "intel-cmplr-lib-rt": "Intel End User License Agreement for Developer Tools",
    "intel-cmplr-lic-rt": "Intel End User License Agreement for Developer Tools",
    "intel-opencl-rt": "Intel End User License Agreement for Developer Tools",
    "nvidia-cuda-nvrtc": "NVIDIA CUDA Toolkit End User License Agreement",
    "nvidia-cuda-runtime": "NVIDIA CUDA Toolkit End User License Agreement",
    "tbb": "Intel Simplified Software License",
    "tcmlib": "Intel Simplified Software License",
}
"""Packages that are not open source, and the terms that they come under."""

_INTRODUCTION: Final = """# Third-party software

Written by `python -m release.supply` from `requirements.lock`; the same as CycloneDX
goes out with each release. Fuseplan itself needs nothing that is not open source: the
runtimes of Intel and NVIDIA come only with the extras `cpu` and `cuda`, under their own
terms, which whoever installs them accepts. With PoCL instead of Intel's runtime, tuning
on a CPU does without them: any OpenCL 3.0 device is accepted.
"""

_PARTS: Final[Mapping[str, str]] = {
    "": "Always installed",
    "postgres": "With the extra `postgres`",
    "cpu": "With the extra `cpu`",
    "cuda": "With the extra `cuda`",
    "sign": "With the extra `sign`",
    "telemetry": "With the extra `telemetry`",
    "dev": "For developing only; not part of a release",
}
_SCRIPTS: Final[Mapping[str, str]] = {
    "cytoscape": "MIT",
    "cytoscape-dagre": "MIT",
    "echarts": "Apache-2.0 AND BSD-3-Clause",
    "htmx": "0BSD",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A piece of software that Fuseplan uses.

    Attributes:
        licence: an SPDX expression, or the name of the terms.
        terms: where terms that are not open source lie once it is installed; else
            empty.
        extra: the extra that brings it; empty when it is always there.
        digests: SHA-256 of each file that the lock allows.
        needs: names of what it depends on.
    """

    name: str
    version: str
    licence: str
    terms: str
    extra: str
    digests: tuple[str, ...]
    needs: tuple[str, ...]


def parts() -> tuple[Part, ...]:
    """Everything that the lock names, sorted."""
    locked = dict(_locked(LOCK.read_text()))
    extra_of = _extras(set(locked))
    return tuple(
        _part(name, version, digests, extra_of, set(locked))
        for name, (version, digests) in sorted(locked.items())
    )


def scripts() -> tuple[Part, ...]:
    """Scripts of the dashboard that are copied into the package."""
    found = []
    for line in (VENDORED / "SHA256SUMS").read_text().splitlines():
        digest, file = line.split()
        name, version = re.fullmatch(r"(.+)-([\d.]+)\.min\.js", file).groups()  # type: ignore[union-attr]
        found.append(
            Part(
                name=name,
                version=version,
                licence=_SCRIPTS[name],
                terms="",
                extra="",
                digests=(digest,),
                needs=(),
            )
        )
    return tuple(found)


def table(found: Sequence[Part]) -> str:
    """The list for people."""
    lines = [_INTRODUCTION.rstrip()]
    for extra, title in _PARTS.items():
        rows = [one for one in found if one.extra == extra]
        if not rows:
            continue
        lines += [
            "",
            f"## {title}",
            "",
            "| package | version | terms |",
            "|---|---|---|",
        ]
        lines += [f"| {one.name} | {one.version} | {_linked(one)} |" for one in rows]
    lines += ["", "## Copied into the dashboard", ""]
    lines += ["| script | version | terms |", "|---|---|---|"]
    lines += [f"| {one.name} | {one.version} | {one.licence} |" for one in scripts()]
    return "\n".join(lines) + "\n"


def bill(found: Sequence[Part]) -> dict[str, Any]:
    """The same in CycloneDX 1.6 (ECMA-424)."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    digest = hashlib.sha256(LOCK.read_bytes()).hexdigest()
    own = f"pkg:pypi/fuseplan@{project['version']}"
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, digest)}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": "fuseplan",
                "version": project["version"],
                "licenses": [{"expression": project["license"]}],
                "purl": own,
            }
        },
        "components": [
            *(_component(one, "pypi") for one in found),
            *(_component(one, "npm") for one in scripts()),
        ],
        "dependencies": [
            {"ref": own, "dependsOn": [_ref(o, "pypi") for o in found if not o.extra]},
            *_edges(found),
        ],
    }


def _edges(found: Sequence[Part]) -> Iterator[dict[str, Any]]:
    by_name = {one.name: one for one in found}
    for one in found:
        needs = [_ref(by_name[name], "pypi") for name in one.needs]
        yield {"ref": _ref(one, "pypi"), "dependsOn": needs}


def _component(one: Part, kind: str) -> dict[str, Any]:
    known = not one.terms
    licence = (
        {"expression": one.licence} if known else {"license": {"name": one.licence}}
    )
    scope = {"": "required", "dev": "excluded"}.get(one.extra, "optional")
    return {
        "type": "library",
        "bom-ref": _ref(one, kind),
        "name": one.name,
        "version": one.version,
        "scope": scope,
        "hashes": [{"alg": "SHA-256", "content": digest} for digest in one.digests],
        "licenses": [licence],
        "purl": _ref(one, kind),
    }


def _ref(one: Part, kind: str) -> str:
    return f"pkg:{kind}/{one.name}@{one.version}"


def _linked(one: Part) -> str:
    return f"{one.licence} (`{one.terms}`)" if one.terms else one.licence


def _locked(text: str) -> Iterator[tuple[str, tuple[str, tuple[str, ...]]]]:
    """Name, version and digests of each entry of a lock."""
    for entry in re.split(r"\n(?=\S)", text):
        head = re.match(r"([\w.-]+)==([^\s;\\]+)", entry)
        if head:
            digests = re.findall(r"--hash=sha256:([0-9a-f]{64})", entry)
            yield head[1], (head[2], tuple(sorted(digests)))


def _extras(known: set[str]) -> dict[str, str]:
    """The first part of `_PARTS` that leads to each package."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = {"": project["dependencies"], **project["optional-dependencies"]}
    found: dict[str, str] = {}
    for extra in _PARTS:
        waiting = [_name(one) for one in asked[extra]]
        while waiting:
            name = waiting.pop()
            if name in known and name not in found:
                found[name] = extra
                waiting += _needs(name)
    return found


def _needs(name: str) -> list[str]:
    """Names of what an installed package asks for, extras that it offers left out."""
    asked = distribution(name).requires or []
    return sorted({_name(one) for one in asked if "extra ==" not in one})


def _name(requirement: str) -> str:
    found = re.match(r"[\w.-]+", requirement)
    assert found is not None, "a requirement begins with a name"
    return re.sub(r"[-_.]+", "-", found[0]).lower()


def _part(
    name: str,
    version: str,
    digests: tuple[str, ...],
    extra_of: Mapping[str, str],
    known: set[str],
) -> Part:
    installed = distribution(name)
    files = [str(file) for file in installed.files or ()]
    terms = next(
        (f for f in files if re.search(r"dist-info/.*license", f, re.IGNORECASE)), ""
    )
    return Part(
        name=name,
        version=version,
        licence=_TERMS.get(name) or _licence(installed.metadata),
        terms=terms if name in _TERMS else "",
        # What only an extra of a dependency brings (`psycopg[binary]`) goes with it.
        extra=extra_of.get(name, extra_of.get(name.rpartition("-")[0], "dev")),
        digests=digests,
        needs=tuple(one for one in _needs(name) if one in known),
    )


def _licence(metadata: PackageMetadata) -> str:
    stated = metadata.get("License-Expression")
    classifiers = metadata.get_all("Classifier") or []
    told = "; ".join(
        sorted(
            one.rpartition("::")[2].strip()
            for one in classifiers
            if one.startswith("License")
        )
    )
    text = str(stated or told or (metadata.get("License") or "").split("\n")[0])
    return _SPDX.get(text, text)


def main() -> None:
    """Write both lists."""
    found = parts()
    TABLE.write_text(table(found))
    BOM.parent.mkdir(exist_ok=True)
    BOM.write_text(json.dumps(bill(found), indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
