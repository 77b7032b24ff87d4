# make demo | test | test-all | fuzz | trust | lint | bench; what tests need: make needs, or one of it: sglang |
# adapters | clients | openclaw | docker | desktop | chromium | bits
# Every target makes .venv and installs what it needs first; nothing else has to be typed.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/ready
SGLANG := .venv-sglang
ADAPTERS := .venv-adapters
CLIENTS := .venv-clients
OPENCLAW := .openclaw
BITS := .bits

.PHONY: demo test test-all fuzz trust lint bench needs sglang adapters clients openclaw docker desktop chromium bits clean

demo: $(READY)
	$(BIN)/python -m claw_env_personal.demo $(ARGS)

# two processes, as most tests wait for processes of their own; a file stays in one of them
test: $(READY)
	$(BIN)/python -m pytest -n 2 --dist loadfile $(ARGS)

test-all: $(READY)
	$(BIN)/python -m pytest -n 2 --dist loadfile --run-slow $(ARGS)

# what comes from outside: 200,000 odd inputs and more
fuzz: $(READY)
	$(BIN)/python -m pytest tests/fuzz --run-slow -m nightly -n 2 --dist worksteal $(ARGS)

# what a run survives, in one table; some hours. A sample: make trust ARGS="--points 8 --minutes 2"
trust: $(READY)
	$(BIN)/python -m benchmarks.trust $(ARGS)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/mypy

# make bench WHAT=kernels ARGS=--smoke
WHAT ?= serving
bench: $(READY)
	$(BIN)/python -m benchmarks.$(WHAT) $(ARGS)

# the real parts of the tests; without one, its tests skip
needs: sglang adapters clients openclaw desktop chromium bits

sglang: $(SGLANG)/ready

$(SGLANG)/ready: tools/install_sglang.sh claw/engine/worker/sglang.py tests/sglang_cpu/claw_sglang_cpu.py
	PYTHON="$(PYTHON)" VENV_SGLANG="$(SGLANG)" bash tools/install_sglang.sh
	@touch $(SGLANG)/ready

adapters: $(ADAPTERS)/ready

$(ADAPTERS)/ready: tools/install_adapters.sh pyproject.toml tests/sdk/adapters/packages/pyproject.toml
	PYTHON="$(PYTHON)" VENV_ADAPTERS="$(ADAPTERS)" bash tools/install_adapters.sh
	@touch $(ADAPTERS)/ready

clients: $(CLIENTS)/ready

$(CLIENTS)/ready: tools/install_clients.sh pyproject.toml plugins/personal/pyproject.toml
	PYTHON="$(PYTHON)" VENV_CLIENTS="$(CLIENTS)" bash tools/install_clients.sh
	@touch $(CLIENTS)/ready

openclaw: $(OPENCLAW)/ready

$(OPENCLAW)/ready: tools/install_openclaw.sh
	OPENCLAW_DIR="$(OPENCLAW)" bash tools/install_openclaw.sh
	@touch $(OPENCLAW)/ready

bits: $(BITS)/ready

$(BITS)/ready: tools/install_bits.sh $(READY)
	VENV="$(VENV)" BITS="$(BITS)" bash tools/install_bits.sh
	@touch $(BITS)/ready

# an engine and the base image of sandboxes; does nothing where both are there
docker:
	bash tools/docker.sh

# the desktop image of the gui plugin, on that base; likewise
desktop:
	bash tools/desktop.sh

# the browser that tests look at the dashboard with
chromium:
	bash tools/chromium.sh

$(READY): pyproject.toml $(wildcard plugins/*/pyproject.toml) tools/install.sh
	PYTHON="$(PYTHON)" VENV="$(VENV)" bash tools/install.sh
	@touch $(READY)

clean:
	rm -rf $(VENV) $(SGLANG) $(ADAPTERS) $(CLIENTS) $(OPENCLAW)
