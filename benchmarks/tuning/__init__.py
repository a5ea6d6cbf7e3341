"""What tuning costs and gives: models from an empty database, under several budgets.

    python -m benchmarks.tuning MODEL ... [--after OTHER --shape batch=1,seq=128]
        [--budgets 60,180,600] [--trials 1000] [--json FILE] [--plot FILE.svg]
        [--log FILE --minutes 1.4]

A model is a file, or the name of one in the folder `--models`. For every model and
budget: wall-clock seconds, kernel runs, kernels measured against the candidates of the
partition, the gap that was proved with measured kernels, and the times of the whole
plans. `--after` tunes another model twice, with the largest budget: from an empty
database, and with what the last run of each model has measured. What shared layers save
is told in two ways: the seconds that the runs took which were not made again, and how
much sooner the second run knew as much as the first one in the end. (Both may use up
their budget: what one has spared, it spends on more kernels.) The plot has the proved
gap over the device time spent, with a dot where a run ended.

`--log` keeps the results of every batch, and the same command goes on where it was
ended: by `--minutes`, within which every call ends, or killed. A machine that is quiet
for minutes at a time can so make a benchmark of an hour; the wall-clock seconds are the
sum of the pieces.
"""
