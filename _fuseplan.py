"""The command's way in: makes sure that the packages it loads are ours.

`cost_model`, `service` and `tuner` are plain names. Another distribution may bring a
package of the same name, which then is loaded instead, or lies in the same folder. This
module has a name that nobody else takes, so that it can say so.
"""

from __future__ import annotations

import base64
import hashlib
import sys
from importlib.metadata import (
    Distribution,
    PackageNotFoundError,
    distribution,
    packages_distributions,
)
from importlib.util import find_spec
from pathlib import Path

NAME = "fuseplan"
PACKAGES = ("cost_model", "service", "tuner")


def main() -> int:
    """Run the command line, or say which distribution is in its way."""
    told = conflict(Path(__file__).resolve().parent)
    if told:
        sys.stderr.write(told)
        return 1
    from service.cli import main as run  # noqa: PLC0415 - known to be ours only now

    return run()


def conflict(home: Path) -> str:
    """What is in the way of our packages, and what to do; empty when nothing is.

    Args:
        home: folder in which our packages lie.
    """
    for name in PACKAGES:
        spec = find_spec(name)
        found = Path(spec.origin).resolve() if spec and spec.origin else None
        if found != home / name / "__init__.py" or not _is_as_installed(name):
            return _explained(name, found)
    return ""


def _ours() -> Distribution | None:
    try:
        return distribution(NAME)
    except PackageNotFoundError:
        return None


def _is_as_installed(package: str) -> bool:
    """Whether a package's first file is the one that was installed.

    Of an editable installation no such file is recorded.
    """
    ours = _ours()
    for file in (ours and ours.files) or ():
        if file.as_posix() == f"{package}/__init__.py" and file.hash is not None:
            data = Path(str(file.locate())).read_bytes()
            digest = hashlib.new(file.hash.mode, data).digest()
            return base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == (
                file.hash.value
            )
    return True


def _explained(package: str, found: Path | None) -> str:
    owners = set(packages_distributions().get(package, ())) - {NAME}
    whose = f"distribution {', '.join(sorted(owners))}" if owners else "something else"
    return (
        f"fuseplan: the package {package!r} that Python loads belongs to {whose}"
        f" (at {found or 'no file'}), not to fuseplan.\n"
        "hint: install fuseplan into an environment of its own: python -m venv fuseplan"
        " && fuseplan/bin/pip install fuseplan\n"
    )


if __name__ == "__main__":
    sys.exit(main())
