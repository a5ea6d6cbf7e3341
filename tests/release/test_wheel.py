"""Tests of the wheel: what is in it, and that it runs without the repository."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from service.store.schema import newest_revision
from tests.conftest import SOAK
from tests.service.api.test_process import asking, free_port
from tests.waiting import address_of

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the source distribution as `python -m build` does."""
    folder = tmp_path_factory.mktemp("dist")
    words = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder)]
    ended = subprocess.run(
        [*words, str(ROOT)], capture_output=True, text=True, check=False, timeout=300
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (built,) = folder.glob("*.whl")
    return built


def names(wheel: Path) -> set[str]:
    """Files of the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def tracked(folder: str) -> set[str]:
    """Files of a folder that are in the repository, without Python's caches."""
    return {
        path.relative_to(ROOT / folder).as_posix()
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_wheel_holds_what_the_commands_read(wheel: Path) -> None:
    """Migrations, templates, scripts, styles, the example, licences; and no tests."""
    found = names(wheel)
    migrations = {f"service/_migrations/{name}" for name in tracked("migrations")}
    pages = {f"service/dashboard/{name}" for name in tracked("service/dashboard")}
    assert migrations <= found
    assert pages <= found
    assert {"service/examples/encoder.onnx", "_fuseplan.py"} <= found
    notes = {name.rpartition("/")[2] for name in found if ".dist-info/" in name}
    assert {"LICENSE", "NOTICE", "THIRD_PARTY.md"} <= notes
    tops = {name.partition("/")[0] for name in found if ".dist-info/" not in name}
    assert tops == {"_fuseplan.py", "cost_model", "service", "tuner"}


class Installed:
    """The wheel in an environment of its own, run from an empty folder.

    Args:
        python: of that environment.
        home: an empty folder.
    """

    def __init__(self, python: Path, home: Path) -> None:
        self._command = python.parent / "fuseplan"
        self._home = home
        kept = ("PATH", "LANG", "TMPDIR")
        self._environment = {n: os.environ[n] for n in kept if n in os.environ}
        self._environment |= {
            "XDG_DATA_HOME": str(home / "data"),
            "XDG_STATE_HOME": str(home / "state"),
            "XDG_CACHE_HOME": str(home / "cache"),
            "HOME": str(home),
        }

    def run(self, *words: str) -> str:
        """Run a command to its end; gives what it printed."""
        ended = subprocess.run(
            [str(self._command), *words],
            cwd=self._home,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    @contextmanager
    def serving(self) -> Iterator[httpx.Client]:
        """The service, and who asks it."""
        words = [str(self._command), "serve", "--port", "0", "--device", "null:0"]
        said = self._home / "service.stderr"
        with (
            said.open("wb") as file,
            subprocess.Popen(
                words, cwd=self._home, env=self._environment, stderr=file
            ) as process,
        ):
            try:
                with asking(address_of(process, said)) as client:
                    yield client
            finally:
                process.kill()


@pytest.fixture
def installed(wheel: Path, tmp_path: Path) -> Installed:
    """An environment that has the wheel and sees no repository.

    At full length it has its own copies of the dependencies; otherwise it borrows them,
    and only them, from the environment of the tests.
    """
    folder = tmp_path / "environment"
    venv.create(folder)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install"]
    pip += ["--quiet", "--disable-pip-version-check"]
    subprocess.run(
        [*pip, "--no-deps", str(wheel)], check=True, cwd=tmp_path, timeout=300
    )
    if SOAK:
        lock = [*pip, "--no-deps", "--require-hashes", "-r"]
        lock.append(str(ROOT / "requirements.lock"))
        subprocess.run(lock, check=True, cwd=tmp_path, timeout=1200)
    else:
        borrow(python, tmp_path)
    home = tmp_path / "elsewhere"
    home.mkdir()
    return Installed(python, home)


def borrow(python: Path, folder: Path) -> None:
    """Let an environment see the dependencies of this one, but not the repository."""
    here = [path for path in map(Path, sys.path) if path.name == "site-packages"]
    there = next((python.parents[1] / "lib").glob("python*/site-packages"))
    shadow = folder / "borrowed"
    shadow.mkdir()
    for site in here:
        for one in site.iterdir():
            is_ours = "fuseplan" in one.name or one.suffix == ".pth"
            place = shadow / one.name
            if not is_ours and not place.exists():
                place.symlink_to(one)
    (there / "borrowed.pth").write_text(f"{shadow}\n")


def answers(client: httpx.Client, paths: Sequence[str]) -> dict[str, int]:
    """Status of each path."""
    return {path: client.get(path, follow_redirects=True).status_code for path in paths}


def test_the_wheel_runs_without_the_repository(installed: Installed) -> None:
    """`db upgrade` finds its migrations, `serve` its pages, `demo` its model."""
    assert newest_revision() in installed.run("db", "upgrade")
    assert "fuseplan 0." in installed.run("--version")
    with installed.serving() as client:
        seen = answers(client, ("/", "/submit", "/devices", "/openapi.json"))
        files = re.findall(r'"(/static/[^"]+)"', client.get("/").text)
        assert len(files) > 2
        seen |= answers(client, files)
    assert set(seen.values()) == {200}, seen
    told = installed.run(
        *("demo", "--once", "--device", "null:0", "--port", str(free_port())),
        *("--budget-seconds", "2", "--budget-trials", "8"),
    )
    assert "Dashboard: http://" in told
