#!/usr/bin/env bash
# Makes $VENV_SGLANG: SGLang, which pins its own torch and transformers, and claw's rollout worker.
# About 11 GB and five minutes, once. Where there is no GPU the plugin comes with it that lets
# SGLang's own models and adapters run on a CPU.
set -euo pipefail
cd "$(dirname "$0")/.."

PYTHON="${PYTHON:-python3}"
VENV_SGLANG="${VENV_SGLANG:-.venv-sglang}"
SGLANG="sglang==$(sed -n 's/^VERSION = "\(.*\)"$/\1/p' claw/engine/worker/sglang.py)"
export PIP_DISABLE_PIP_VERSION_CHECK=1

has_gpu() { command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi -L 2>/dev/null | grep -q GPU; }

[ -x "$VENV_SGLANG/bin/python" ] || "$PYTHON" -m venv "$VENV_SGLANG"
echo "installing $SGLANG into $VENV_SGLANG (once; about five minutes)"
"$VENV_SGLANG/bin/pip" install --quiet "$SGLANG"
"$VENV_SGLANG/bin/pip" install --quiet -e ".[rollout]"
has_gpu || "$VENV_SGLANG/bin/pip" install --quiet --no-deps tests/sglang_cpu
echo "made; use it: worker.kind=sglang sglang.python=$(realpath -s "$VENV_SGLANG")/bin/python"
