#!/usr/bin/env bash
# Puts bitsandbytes into the folder $BITS, beside the tests' environment and not into it: peft
# imports it wherever it is installed, which takes seconds of every process that trains.
set -euo pipefail
cd "$(dirname "$0")/.."

BITS="${BITS:-.bits}"
VENV="${VENV:-.venv}"
export PIP_DISABLE_PIP_VERSION_CHECK=1

echo "installing bitsandbytes into $BITS (once)"
rm -rf "$BITS"
"$VENV/bin/pip" install --quiet --no-deps --target "$BITS" "bitsandbytes>=0.49"
