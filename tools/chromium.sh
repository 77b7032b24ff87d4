#!/usr/bin/env bash
# Installs a Chromium for the tests of the dashboard where there is none: Debian's package as root.
# The tests drive it with playwright (PyPI), which needs no browser of its own for that.
set -euo pipefail
for name in chromium chromium-browser google-chrome; do
  if command -v "$name" >/dev/null 2>&1; then echo "[chromium] $(command -v "$name")" >&2; exit 0; fi
done
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
  printf 'error: no Chromium on this machine\n  do: install one (Debian: apt-get install chromium), or run this as root on Debian\n' >&2
  exit 1
fi
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null
command -v chromium >&2
