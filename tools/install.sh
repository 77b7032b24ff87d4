#!/usr/bin/env bash
# Makes $VENV and installs claw with its demo and tests into it.
# On a machine without an NVIDIA GPU the CPU build of torch is installed first, so that no later
# requirement pulls a CUDA build of several GB.
set -euo pipefail

PYTHON="${PYTHON:-python3}"
VENV="${VENV:-.venv}"
TORCH_CPU="torch==2.13.0"
CPU_INDEX="https://download.pytorch.org/whl/cpu"

check_python() {
  "$PYTHON" - <<'PY' || exit 1
import sys
if not (3, 11) <= sys.version_info[:2] <= (3, 13):
    found = ".".join(map(str, sys.version_info[:3]))
    sys.exit(f"error: claw needs Python 3.11 to 3.13\n  found: {found}\n"
             "  do: name another one, for example: make demo PYTHON=python3.12")
PY
}

has_gpu() { command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi -L 2>/dev/null | grep -q GPU; }

cpu_index_answers() {
  "$PYTHON" - "$CPU_INDEX/torch/" <<'PY' >/dev/null 2>&1
import sys, urllib.request
urllib.request.urlopen(sys.argv[1], timeout=4).read(64)
PY
}

install_torch() {
  if has_gpu; then
    "$VENV/bin/pip" install --quiet "torch>=2.11,<2.15"
  elif [ "$(uname -s)" = Linux ] && cpu_index_answers; then
    "$VENV/bin/pip" install --quiet --index-url "$CPU_INDEX" "$TORCH_CPU"
  else
    "$VENV/bin/pip" install --quiet "$TORCH_CPU"
  fi
}

check_python
[ -x "$VENV/bin/python" ] || "$PYTHON" -m venv "$VENV"
export PIP_DISABLE_PIP_VERSION_CHECK=1
echo "installing torch and claw into $VENV (once; one to three minutes)"
install_torch
"$VENV/bin/pip" install --quiet -e ".[train,serve,sandbox,openenv,encrypted,ray,demo,dev]" \
  -e "plugins/personal[demo]" -e plugins/terminal -e plugins/toolcall -e plugins/gui \
  -e "plugins/swe[parquet]"
