# Two commands matter: `make demo` and `make test`. Both set themselves up.
.PHONY: install demo test check soak lock release patterns bench bench-ui pictures clean

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

install: $(STAMP)

# One lock serves everything; --no-deps because the lock is already complete.
$(STAMP): requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $(STAMP)

demo: install
	$(BIN)/fuseplan demo $(if $(ONCE),--once)

# In this order: what judges values alone and waits for nobody; what waits for processes
# that it kills and starts again, two files at a time, so that each file has a core; and
# what times this processor, by itself. By file: a new one is in the first part until it
# has such a reason.
WAITING := $(addprefix tests/service/jobs/test_,outages.py fleet.py) \
	tests/service/api/test_process.py \
	$(addprefix tests/service/jobs/test_,worker.py stopping.py)
ALONE := $(addprefix tests/service/cli/test_,running.py tuning.py) \
	$(addprefix tests/tuner/runtime/test_, \
	backends.py bench.py executor.py flush.py runner.py) \
	$(addprefix tests/tuner/search/test_, \
	faults.py on_processor.py under_load.py)
# Plugins that no test uses take a second to load; the rewritten tests are kept, also
# where Python is told to keep no bytecode.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -q -p no:schemathesis -p no:anyio
TWO := -n 2 --dist loadfile --no-loadscope-reorder
test: install
ifdef TESTS
	$(PYTEST) $(TESTS)
else
	$(PYTEST) --durations=30 $(TWO) $(addprefix --ignore=,$(WAITING) $(ALONE))
	$(PYTEST) --durations=30 $(TWO) $(WAITING)
	$(PYTEST) --durations=30 $(ALONE)
endif

# Everything that needs no running: format, lint, types, walls, dependencies, words.
check: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/deptry .
	$(BIN)/codespell .

# The same tests at full length: fuzzing, all dtypes and architectures.
soak: install
	FUSEPLAN_SOAK=1 $(BIN)/python -m pytest -q $(TESTS)

# Judge the planner on the small graphs with golden facts.
patterns: install
	$(BIN)/python -m tests.tuner.fusion.patterns

# Kernels beside those of five libraries, which get an environment of their own.
bench: install
	$(BIN)/python -m benchmarks.peers --environment .peers

# What the dashboard takes to paint and to answer when a job is large.
bench-ui: install
	$(BIN)/python -m benchmarks.ui

# Every view of the dashboard, from a real run.
pictures: install
	$(BIN)/python -m tests.browser.pictures

# Write the resolved versions and hashes of every extra again.
lock:
	$(PYTHON) -m venv .lockenv && .lockenv/bin/pip install --quiet uv
	.lockenv/bin/uv pip compile pyproject.toml --all-extras --python-version 3.11 \
		--generate-hashes --no-header --no-annotate --quiet -o requirements.lock
	rm -rf .lockenv
	$(BIN)/python -m release.supply

# The distribution, the list of third parties and the bill of materials, in dist/.
release: install
	$(BIN)/python -m build --no-isolation
	$(BIN)/python -m release.supply

clean:
	rm -rf .venv .peers .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
