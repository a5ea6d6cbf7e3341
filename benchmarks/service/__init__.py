"""How much of a bare handler's speed is left in a lookup, and at how many plans.

    python -m benchmarks.service --seconds 5 --plans 1000000
    python -m benchmarks.service --parts busy

Needs `wrk`. In one run, in turns, `wrk` asks the service and a bare FastAPI handler
that answers with the same status, headers and bytes: one process each, uvloop and
httptools, token check, request id and metrics on in the service, its log at `warning`.
Before all that is compared comes a run that is not counted.
Then a service with a thousand plans is compared with one that has many: lookups of
one key, of changing keys, and a thousand keys in one request. In the end workers tune
on the same machine while `wrk` asks. `--parts` names some of these three, `--database
URL` gives a PostgreSQL beside the SQLite that is always measured, `--only` leaves one
of them out. A line ends with `ok` or `MISSED`, by the targets that are constants here.
"""
