#!/usr/bin/env bash
# Makes two environments in $VENV_ADAPTERS with other people's packages, for the tests of the
# adapters, and claw in each. Two, and none of them the tests' own: verifiers 0.4 wants mcp 2.0.0 and
# openai before 3, openenv wants mcp before 2, and the v0 of verifiers ends with 0.3.
# About 800 MB and three minutes, once.
set -euo pipefail
cd "$(dirname "$0")/.."

PYTHON="${PYTHON:-python3}"
VENV_ADAPTERS="${VENV_ADAPTERS:-.venv-adapters}"
export PIP_DISABLE_PIP_VERSION_CHECK=1

make_one() { # NAME PACKAGE...
  local folder="$VENV_ADAPTERS/$1"
  [ -x "$folder/bin/python" ] || "$PYTHON" -m venv "$folder"
  echo "installing ${*:2} into $folder (once)"
  "$folder/bin/pip" install --quiet "${@:2}" -e . "pytest>=8" "pytest-timeout>=2.3"
  "$folder/bin/pip" install --quiet --no-deps -e tests/sdk/adapters/packages
}

make_one verifiers-0.4 "verifiers==0.4.0"
make_one verifiers-0.3-openenv "verifiers==0.3.1" "openenv==0.10.0"
