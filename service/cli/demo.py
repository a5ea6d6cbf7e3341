"""The demo: a service, a model, tuning that one can watch, and the cache."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from service.cli import inputs, output, views
from service.cli.exits import ServiceDown
from service.dashboard.formats import duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from service.client import Client, Submission

START_SECONDS: Final = 60.0
STOP_SECONDS: Final = 15.0
MODEL: Final = "encoder.onnx"


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command(epilog="Example: fuseplan demo --once")(demo)


def demo(
    once: Annotated[bool, typer.Option("--once", help="End after the table.")] = False,
    budget_seconds: Annotated[
        float, typer.Option("--budget-seconds", min=1.0, help="Device time to spend.")
    ] = 30.0,
    budget_trials: Annotated[
        int, typer.Option("--budget-trials", min=1, help="Kernel runs to spend.")
    ] = 200,
    device: Annotated[
        str, typer.Option("--device", "-d", help="Device of this machine.")
    ] = "cpu",
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Forget earlier runs: use a new database.")
    ] = False,
    port: Annotated[
        int | None,
        typer.Option(
            "--port", min=1, max=65535, help="Port; by default 8321, or a free one."
        ),
    ] = None,
) -> None:
    """Tune a transformer encoder while you watch, then ask for it again."""
    from service.client import Client
    from service.jobs.planning import target_of

    target_of(device)  # a device that cannot be is told before a service is started
    model = example_model()
    asked = Budgets(seconds=budget_seconds, trials=budget_trials)
    with (
        serving(device, port, fresh=fresh) as service,
        Client(service.address) as client,
    ):
        output.line(f"Service at {service.address}, log in {service.log}")
        first = _tune(client, model, device, asked)
        measured = _show(client, first)
        if not measured:
            asked = replace(asked, mode="analytic")
        _again(client, model, device, asked)
        page = f"/jobs/{first.job}" if first.job else f"/plans/{first.plan_key}"
        output.line(f"Dashboard: {service.address}{page}")
        if not once:
            output.line("Serving until Ctrl-C.")
            service.process.wait()


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """What the demo's job may spend."""

    seconds: float
    trials: int
    mode: Literal["analytic", "tuned"] = "tuned"


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A service that runs as a child process."""

    address: str
    log: Path
    process: subprocess.Popen[bytes]


def example_model() -> bytes:
    """The encoder that ships with Fuseplan, from the package or the source tree."""
    packaged = files("service") / "examples" / MODEL
    if packaged.is_file():
        with as_file(packaged) as path:
            return path.read_bytes()
    beside = Path(__file__).resolve().parents[2] / "examples" / MODEL
    return inputs.read_bytes(beside)


@contextmanager
def serving(device: str, port: int | None, *, fresh: bool) -> Iterator[Service]:
    """A service on this machine for as long as the block lasts."""
    given = inputs.settings()
    log = given.log_file.with_name("demo.log")
    log.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        chosen = given.port if port is None else port
        chosen = chosen if port is not None or _is_free(chosen) else _free_port()
        command = [*_COMMAND, "serve", "--host", "127.0.0.1", "--port", str(chosen)]
        command += ["--device", device]
        if fresh:
            folder = stack.enter_context(
                tempfile.TemporaryDirectory(prefix="fuseplan-")
            )
            command += ["--database-url", f"sqlite:///{folder}/demo.db"]
        file = stack.enter_context(log.open("wb"))
        process = subprocess.Popen(  # noqa: S603 - our own command
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=file
        )
        stack.callback(_stop, process)
        address = f"http://127.0.0.1:{chosen}"
        service = Service(address=address, log=log, process=process)
        _wait_until_ready(service)
        yield service


_COMMAND: Final = (
    sys.executable,
    "-c",
    "import sys; from service.cli import main; sys.exit(main())",
)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_until_ready(service: Service) -> None:
    """Wait for the first answer.

    Raises:
        ServiceDown: the process ended, or gave none in time.
    """
    import httpx

    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if service.process.poll() is not None:
            last = service.log.read_text(errors="replace").strip().splitlines()
            said = last[-1] if last else "it said nothing"
            raise ServiceDown(
                "service", f"did not start: {said}", hint=str(service.log)
            )
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"{service.address}/readyz", timeout=2.0).is_success:
                return
        time.sleep(0.1)
    raise ServiceDown(service.address, "gave no answer in time", hint=str(service.log))


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _tune(client: Client, model: bytes, device: str, asked: Budgets) -> Submission:
    """Submit, and follow the job to its end; the answer as of the submission."""
    answer = client.submit(_submission(model, device, asked))
    if answer.job is None:
        output.line("This model was tuned before; --fresh tunes it again.")
        return answer
    from service.cli.tuning import tuning_bar

    with tuning_bar(asked.seconds) as update:
        for event in client.events(answer.job):
            if "trials" in event.data:
                update(event.data)
    job = client.job(answer.job)
    if job.state == "failed":
        detail = str((job.error or {}).get("detail", "the job failed"))
        raise ServiceDown(f"job {job.id}", detail, hint="see the service's log")
    return answer


def _submission(model: bytes, device: str, asked: Budgets) -> Any:
    from service.client import Submit
    from service.jobs.planning import target_of

    return Submit(
        model=model,
        target=target_of(device).id,
        mode=asked.mode,
        budget_seconds=asked.seconds,
        budget_trials=asked.trials,
        title=MODEL,
    )


def _show(client: Client, answer: Submission) -> bool:
    """Print the plan as it is stored now, in the model's names.

    Returns:
        Whether it is a measured one.
    """
    from tuner import document

    plan = client.get(f"/v1/plans/{answer.plan_key}")
    joined: Mapping[str, Any] = {
        "plan_key": answer.plan_key,
        **document.joined(plan, answer.names),
    }
    views.show_plan(joined)
    views.show_measured(joined)
    if plan["evidence"] != "measured":
        output.line("No measured plan was found; see the service's log.")
    return bool(plan["evidence"] == "measured")


def _again(client: Client, model: bytes, device: str, asked: Budgets) -> None:
    """Ask the same again, and show that nothing was measured for the answer."""
    before = client.get("/v1/cache-info")["measurements"]
    started = time.perf_counter()
    answer = client.submit(_submission(model, device, asked))
    seconds = time.perf_counter() - started
    measured = client.get("/v1/cache-info")["measurements"] - before
    origin = "the cache" if answer.cached else "a new plan"
    output.line(
        f"Submitted again: {answer.evidence} plan from {origin} in "
        f"{duration(seconds)}, {measured} measurements made."
    )
