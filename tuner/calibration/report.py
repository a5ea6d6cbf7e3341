"""The few figures of an accuracy run that matter, and whether they get worse."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any, Final

import numpy as np

from cost_model.accuracy import (
    held_out_coverage,
    kendall_tau,
    mean_relative_error,
    sign_accuracy,
    stated_interval,
)
from cost_model.fitting import robust_fit
from tuner.calibration.findings import (
    SHORTLIST,
    Accuracy,
    Decision,
    Regret,
    Trial,
    width,
)
from tuner.plan import Measurement

LONG_SECONDS: Final = 1e-4
"""Kernels above are judged apart from those in which the launch decides."""
SPREAD: Final = 3.0
"""A ranking counts where schedules differ by more than so many times the noise."""
STATED: Final = 0.8
"""Share of times that the stated interval of a prediction claims to hold."""
_MIN_KERNELS: Final = 3
"""Fewer kernels of a family say nothing of one that is left out."""
_MIN_FIT: Final = 3
DRIFT_FACTOR: Final = 1.5
"""An error that has grown so much is no accident of the schedules that were drawn."""
DRIFT_RUNS: Final = 2
"""Earlier runs that a drift is judged by, at least."""

Json = dict[str, Any]
Predict = Callable[[Trial], float]


def summary(measured: Accuracy) -> Json:
    """The figures, each beside those of `bytes / bandwidth + launch`.

    The small model gets its two numbers from the very samples that judge it, so it
    is as good as it can be.
    """
    trials = measured.trials
    launch, per_byte = _small_model(trials)
    small = lambda trial: launch + per_byte * trial.moved_bytes  # noqa: E731
    models: tuple[Predict, Predict] = (lambda trial: trial.predicted_seconds, small)
    rows = [
        *_sign_rows(measured.decisions, launch, per_byte),
        _within_row(trials, models),
        *_overall_rows(trials, models),
        *_family_rows(trials, models),
        *_uncertainty_rows(trials, models),
        *_regret_rows(measured.regrets),
    ]
    times = [trial.measured for trial in trials]
    return {
        "device": {"id": measured.device.id, "digest": measured.device.digest},
        "rows": rows,
        "bound": _bound(trials),
        "uncertainty": _uncertainty(trials),
        "small_model": {"launch_seconds": launch, "seconds_per_byte": per_byte},
        "noise": median(width(each) for each in times) if times else None,
        "contended": sum(each.contended for each in times)
        + sum(d.fused.contended for d in measured.decisions),
        "complete": measured.is_complete,
        "failures": len(measured.failures),
        "seconds": measured.seconds,
    }


def drifted(now: Mapping[str, Any], before: Sequence[Mapping[str, Any]]) -> list[str]:
    """In which figures predictions are worse than they used to be on this machine.

    Args:
        now: summary of a run.
        before: summaries of earlier runs, in any order; fewer than `DRIFT_RUNS` say
            nothing.

    Returns:
        A sentence for each error that exceeds the median of the earlier ones by the
        factor `DRIFT_FACTOR`, and by more than the noise of this run.
    """
    if len(before) < DRIFT_RUNS:
        return []
    found = []
    for what, value in _errors(now).items():
        earlier = [_errors(each)[what] for each in before if what in _errors(each)]
        if len(earlier) < DRIFT_RUNS:
            continue
        usual = median(earlier)
        if value > DRIFT_FACTOR * usual and value > usual + (now["noise"] or 0.0):
            found.append(f"{what}: {value:.1%}, where it used to be {usual:.1%}")
    return found


def _errors(told: Mapping[str, Any]) -> Mapping[str, float]:
    """Relative errors of a summary by the words of their rows."""
    rows = [row for row in told["rows"] if row["what"].startswith("error ")]
    return {row["what"]: row["model"] for row in rows if row["model"] is not None}


def _small_model(trials: Sequence[Trial]) -> tuple[float, float]:
    if len(trials) < _MIN_FIT:
        return 0.0, 0.0
    columns = np.array([[1.0, trial.moved_bytes] for trial in trials])
    seconds = np.array([trial.measured.seconds for trial in trials])
    (launch, per_byte), _ = robust_fit(columns, seconds)
    return float(launch), float(per_byte)


def _row(
    what: str,
    count: int,
    model: float,
    baseline: float | None,
    noise: Sequence[Measurement] = (),
) -> Json:
    """One figure, beside that of the small model and the noise of its measurements."""
    return {
        "what": what,
        "count": count,
        "model": _finite(model),
        "baseline": None if baseline is None else _finite(baseline),
        "noise": median(width(each) for each in noise) if noise else None,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _sign_rows(
    decisions: Sequence[Decision], launch: float, per_byte: float
) -> list[Json]:
    decided = [d for d in decisions if d.is_decided]
    truth = [(d.fused.seconds, d.apart.seconds) for d in decided]
    said = [(d.fused_predicted_seconds, d.apart_predicted_seconds) for d in decided]
    small = [
        (launch + per_byte * d.fused_bytes, 2 * launch + per_byte * d.apart_bytes)
        for d in decided
    ]
    ours, theirs = sign_accuracy(said, truth), sign_accuracy(small, truth)
    apart = [index for index, pair in enumerate(truth) if pair[1] < pair[0]]
    lost = [(said[i], truth[i], small[i]) for i in apart]
    kept_ours = sign_accuracy([x[0] for x in lost], [x[1] for x in lost])
    kept_theirs = sign_accuracy([x[2] for x in lost], [x[1] for x in lost])
    return [
        _row(
            "fusion decisions, sign right",
            len(decided),
            ours.share,
            theirs.share,
            [side for d in decisions for side in (d.fused, d.apart)],
        ),
        _row("  where apart is faster", len(lost), kept_ours.share, kept_theirs.share),
    ]


def _within_row(
    trials: Sequence[Trial], models: tuple[Predict, Predict], of: str = ""
) -> Json:
    """Rank correlation inside a kernel, where its schedules differ at all."""
    kernels: dict[object, list[Trial]] = {}
    for trial in trials:
        kernels.setdefault((trial.name, trial.shape), []).append(trial)
    clear = [group for group in kernels.values() if _spreads(group)]
    found = [
        [kendall_tau([model(t) for t in group], _times(group)) for group in clear]
        for model in models
    ]
    # A model that ties all schedules ranks none of them.
    taus = [[0.0 if math.isnan(tau) else tau for tau in part] for part in found]
    ours, theirs = (median(part) if part else math.nan for part in taus)
    noise = [trial.measured for group in clear for trial in group]
    return _row(f"tau within a kernel, median{of}", len(clear), ours, theirs, noise)


def _spreads(group: Sequence[Trial]) -> bool:
    seconds = _times(group)
    noise = median(width(trial.measured) for trial in group)
    return len(group) > 1 and max(seconds) / min(seconds) - 1.0 > SPREAD * noise


def _times(trials: Sequence[Trial]) -> list[float]:
    return [trial.measured.seconds for trial in trials]


def _overall_rows(
    trials: Sequence[Trial], models: tuple[Predict, Predict]
) -> list[Json]:
    long = [t for t in trials if t.measured.seconds > LONG_SECONDS]
    short = [t for t in trials if t.measured.seconds <= LONG_SECONDS]
    micro = f"{LONG_SECONDS * 1e6:g} us"
    rows = []
    if len(trials) > 1:
        taus = [kendall_tau([m(t) for t in trials], _times(trials)) for m in models]
        noise = [trial.measured for trial in trials]
        rows.append(_row("tau over all", len(trials), taus[0], taus[1], noise))
    for what, part in ((f"error above {micro}", long), (f"error below {micro}", short)):
        if part:
            rows.append(_error_row(what, part, models))
    return rows


def _error_row(
    what: str, trials: Sequence[Trial], models: tuple[Predict, Predict]
) -> Json:
    truth = _times(trials)
    ours, theirs = (
        mean_relative_error([model(t) for t in trials], truth) for model in models
    )
    return _row(what, len(trials), ours, theirs, [t.measured for t in trials])


def _by_family(trials: Sequence[Trial]) -> list[tuple[str, list[Trial]]]:
    families: dict[str, list[Trial]] = {}
    for trial in trials:
        families.setdefault(trial.family, []).append(trial)
    return sorted(families.items())


def _uncertainty(trials: Sequence[Trial]) -> Json:
    """By family the factors of a prediction that hold most of the measured times."""
    return {
        family: stated_interval(
            [trial.predicted_seconds for trial in part], _times(part), STATED
        )
        for family, part in _by_family(trials)
    }


def _uncertainty_rows(
    trials: Sequence[Trial], models: tuple[Predict, Predict]
) -> list[Json]:
    """How many times lie where the other kernels of their family say."""
    rows = []
    for family, part in _by_family(trials):
        kernels: dict[object, list[Trial]] = {}
        for trial in part:
            kernels.setdefault((trial.name, trial.shape), []).append(trial)
        if len(kernels) < _MIN_KERNELS:
            continue
        ours, theirs = (
            held_out_coverage(
                [
                    (np.array([model(t) for t in group]), np.array(_times(group)))
                    for group in kernels.values()
                ],
                STATED,
            )
            for model in models
        )
        rows.append(
            _row(f"inside the stated {STATED:.0%}, {family}", len(part), ours, theirs)
        )
    return rows


def _family_rows(
    trials: Sequence[Trial], models: tuple[Predict, Predict]
) -> list[Json]:
    rows = []
    for family, part in _by_family(trials):
        rows.append(_error_row(f"error, {family}", part, models))
        rows.append(_within_row(part, models, f", {family}"))
    return rows


def _regret_rows(regrets: Sequence[Regret]) -> list[Json]:
    rows = []
    for count, what in ((1, "first choice"), (SHORTLIST, f"best of {SHORTLIST}")):
        shares = [r.share for r in regrets if r.shortlist == count]
        if shares:
            mean = sum(shares) / len(shares)
            rows.append(_row(f"regret, {what}, mean", len(shares), mean, None))
    return rows


def _bound(trials: Sequence[Trial]) -> Mapping[str, Any]:
    """Violations beyond the interval, and how tight the bound is."""
    broken = [t for t in trials if t.bound_seconds > t.measured.high_seconds]
    shares = [t.bound_seconds / t.measured.seconds for t in trials]
    return {
        "kernels": len(trials),
        "violations": len(broken),
        "worst": max(shares) if shares else None,
        "tightness": median(shares) if shares else None,
        "broken": [f"{t.name}{list(t.shape)} {t.schedule.as_dict}" for t in broken],
    }
