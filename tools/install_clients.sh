#!/usr/bin/env bash
# Makes one environment in $VENV_CLIENTS for each older client library that is still in use, with
# claw in it, for tests: the newest ones are in the tests' own environment. About a minute, once.
set -euo pipefail
cd "$(dirname "$0")/.."

PYTHON="${PYTHON:-python3}"
VENV_CLIENTS="${VENV_CLIENTS:-.venv-clients}"
export PIP_DISABLE_PIP_VERSION_CHECK=1

folder="$VENV_CLIENTS/openai-2"
[ -x "$folder/bin/python" ] || "$PYTHON" -m venv "$folder"
echo "installing openai 2 into $folder (once)"
"$folder/bin/pip" install --quiet "openai==2.8.0" -e ".[serve]" -e plugins/personal \
  "pytest>=8" "pytest-timeout>=2.3"
