"""What results change in a tuning run, and the events that tell of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tuner.plan import Schedule
from tuner.search import contest
from tuner.search.alternatives import Avoided
from tuner.search.contest import is_disturbed
from tuner.search.costs import PriceKind
from tuner.search.kernels import failed_check, plain_of
from tuner.search.plans import Plans
from tuner.search.records import Json, from_json, solution_from, toolchain_id
from tuner.search.rounds import Proof, Round
from tuner.search.run import Run
from tuner.search.stages import RECOVERY_ROUNDS


class Observer:
    """Takes in the result of one item after the other.

    Args:
        run: what is known.
        plans: what was run whole.
        progress: how far the run is; part of most events.
        partial_reason: why the result is less than what was asked.
    """

    def __init__(
        self,
        run: Run,
        plans: Plans,
        *,
        progress: Callable[[], Json],
        partial_reason: Callable[[], str],
    ) -> None:
        self._run = run
        self._plans = plans
        self._progress = progress
        self._partial_reason = partial_reason

    def observe(self, item: Mapping[str, Any], result: Mapping[str, Any]) -> list[Json]:
        """Take in one result; returns the events that it caused."""
        run = self._run
        run.ledger.seconds += float(result.get("cost_seconds", 0.0))
        if result.get("gone"):
            run.gone = str(result["gone"])
            run.enter("done")
            return []
        ways: Mapping[str, Callable[[Any, Any], list[Json]]] = {
            "device": self._device,
            "solve": self._solution,
            "whole": self._whole,
            "verify": self._check,
            "kernel": self._kernel,
            "operators": self._operators,
        }
        return ways[item["kind"]](item, result)

    def _device(
        self, _item: Mapping[str, Any], result: Mapping[str, Any]
    ) -> list[Json]:
        self._run.toolchain = dict(result["toolchain"])
        for state in self._run.kernels.values():
            self._run.load(state)
        return [{"type": "device", "toolchain": dict(self._run.toolchain)}]

    def _operators(
        self, _item: Mapping[str, Any], result: Mapping[str, Any]
    ) -> list[Json]:
        return [{"type": "operators", "operators": result["operators"]}]

    def _kernel(self, item: Mapping[str, Any], result: Mapping[str, Any]) -> list[Json]:
        run = self._run
        state = run.kernels[item["kernel"]]
        schedule = Schedule.of(**item["schedule"])
        measurement = from_json(result)
        run.mixed |= result.get("toolchain") != toolchain_id(run.toolchain)
        run.ledger.trials += 1
        run.ledger.kernel_seconds += float(result.get("cost_seconds", 0.0))
        state.take(schedule, measurement)
        if run.kept is not None:
            tuned = {**plain_of(run.kernels), **run.kept.tuned}
            run.kept = replace(run.kept, tuned=tuned)
        event = {
            "type": "trial",
            "kernel": item["kernel"],
            "family": str(state.family),
            "schedule": dict(item["schedule"]),
            "key": item["key"],
            "seconds": result["seconds"],
            "low_seconds": measurement.low_seconds,
            "high_seconds": measurement.high_seconds,
            "failure": measurement.failure,
            "message": measurement.message[:500],
            "predicted_seconds": state.predicted_seconds,
            "contended": measurement.contended,
            "uses": state.uses,
            **self._progress(),
        }
        return [event]

    def _check(self, item: Mapping[str, Any], result: Mapping[str, Any]) -> list[Json]:
        """A loaded result passed, or is dropped and its kernel searched again."""
        state = self._run.kernels[item["kernel"]]
        schedule = Schedule.of(**item["schedule"])
        state.loaded.discard(schedule)
        failure, message = str(result["failure"]), str(result["message"])
        if not failure:
            return []
        kept = state.results[schedule]
        state.take(schedule, failed_check(kept, failure, message))
        self._run.enter("recover")
        self._run.rounds_left = RECOVERY_ROUNDS
        return [
            {
                "type": "check",
                "kernel": item["kernel"],
                "schedule": dict(item["schedule"]),
                "failure": failure,
                "message": message[:500],
            }
        ]

    def _solution(
        self, item: Mapping[str, Any], result: Mapping[str, Any]
    ) -> list[Json]:
        run = self._run
        kind: PriceKind = item["price"]
        if kind != "predicted":  # the first solve prepares what all others use
            took = float(result.get("cost_seconds", 0.0))
            run.solve_seconds = max(run.solve_seconds, took)
        if item.get("avoided"):
            return [self._other(frozenset(item["avoided"]), result["solution"])]
        asked = run.costs.known()
        answer = run.use(solution_from(result["solution"]))
        if kind == "optimistic":
            return [self._proof(answer)]
        changed = answer.changes(run.current)
        run.current = answer
        if kind == "predicted":
            run.first = answer.solution
            run.seen.append(answer)
            return []
        run.solved_with = asked
        run.rounds += 1
        if changed:
            run.seen.append(answer)
        else:
            run.rounds_left = 0
        return [self._resolve_event(kind, answer, changed)]

    def _other(self, avoided: Avoided, solved: Mapping[str, Any] | None) -> Json:
        """The cheapest partition without some kernels; there may be none."""
        run = self._run
        answer = None if solved is None else run.use(solution_from(solved))
        run.others.take(avoided, answer, run.costs)
        told: Json = {"type": "alternative", "avoided": sorted(avoided)}
        if answer is not None:
            told["kernels"] = len(answer.states)
            told["changed"] = answer.changes(run.best())
            told["expected_seconds"] = answer.objective_seconds(run.costs)
        return {**told, **self._progress()}

    def _proof(self, answer: Round) -> Json:
        """A solution under optimistic prices bounds every partition from below."""
        run = self._run
        changed = answer.changes(run.proof.answer if run.proof else None)
        run.proof = Proof(answer, run.costs)
        run.seen.append(answer)
        return self._resolve_event("optimistic", answer, changed)

    def _resolve_event(self, kind: PriceKind, answer: Round, changed: int) -> Json:
        return {
            "type": "resolve",
            "price": kind,
            "round": self._run.rounds + self._run.proofs,
            "kernels": len(answer.states),
            "changed": changed,
            **self._progress(),
        }

    def _whole(self, item: Mapping[str, Any], result: Mapping[str, Any]) -> list[Json]:
        run = self._run
        found = {name: from_json(record) for name, record in result["whole"].items()}
        line = self._plans.line_up()
        run.winner = contest.judge(found, item["labels"])
        run.kept = line.contestants[run.winner]
        same = {n: found[ran] for n, ran in line.aliases.items() if ran in found}
        run.whole = {**found, **same}
        return [
            {
                "type": "plan",
                "winner": run.winner,
                "seconds": {
                    name: record["seconds"] for name, record in result["whole"].items()
                },
                "contended": is_disturbed(found),
                "partitions": self._plans.rows(),
                "partial_reason": self._partial_reason(),
                **self._progress(),
            }
        ]
