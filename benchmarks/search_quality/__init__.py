"""How few runs find the best schedule: record whole spaces once, replay at will.

    python -m benchmarks.search_quality record benchmarks/data/spaces-cpu-1.json
    python -m benchmarks.search_quality record benchmarks/data/spaces-cpu-2.json
    python -m benchmarks.search_quality replay benchmarks/data/spaces-cpu-1.json \
        benchmarks/data/spaces-cpu-2.json
    python -m benchmarks.search_quality learn benchmarks/data/spaces-cpu-1.json \
        benchmarks/data/spaces-cpu-2.json

Recording measures every schedule of every kernel below, verified: every power of two
of every knob that is legal for the device, which is more than a tuning run would try.
The fastest are then run again, in turns, and count by their median, since the least of
hundreds of noisy times is nobody's time. It takes minutes for each kernel; `--minutes`
ends it in time, and the same command goes on where it stopped. The machine must be
quiet: a schedule whose runs are disturbed again and again is left out, and tried again
by the next call. With `--rivals` what another recording found fast is run as often, so
that no schedule is judged by a single run that happened to be slow.

Replaying compares random search, Optuna's default TPE, the study of a tuning run, and
what knowing the first recording whole would give: the first recording is what a search
sees, the second, made an hour later, is what counts. With `--repriced` the search has
the defaults and prices of this version, so that a change of the cost model shows
without measuring again; `ours` then tries what a tuning run of this version would try,
as in a run, and `of all` is the same study let loose on everything that was recorded.
The best of all schedules is what counts for both. What the study knows of other kernels
is learned for each space from all others of the first recording, never from the space
itself.

Learning writes what a tuning run knows of other kernels (`tuner.search.experience`); it
is to be called again when the cost model or the generated code has changed.
"""
