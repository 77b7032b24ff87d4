#!/usr/bin/env bash
# Makes the desktop image of the gui plugin on the base image, which tools/docker.sh makes first.
# One and a half minutes where the image is missing or its recipe changed, else half a second.
#   tools/desktop.sh --image-only  never installs or starts an engine
set -euo pipefail
cd "$(dirname "$0")"

IMAGE=claw/desktop:bookworm
RECIPE=$(find desktop -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum | cut -c1-16)

say() { echo "[desktop ${SECONDS}s] $*" >&2; }
cli() { if [ -x /usr/bin/docker ]; then /usr/bin/docker "$@"; else docker "$@"; fi; }

bash docker.sh "$@"
if [ "$(cli image inspect --format '{{index .Config.Labels "claw.recipe"}}' "$IMAGE" 2>/dev/null)" != "$RECIPE" ]; then
  say "making $IMAGE (a minute and a half)"
  # the engine's own builder: it needs no plugin, and it never asks a registry for a local image
  if ! said=$(DOCKER_BUILDKIT=0 cli build --label "claw.recipe=$RECIPE" -t "$IMAGE" desktop 2>&1); then
    printf '%s\n' "$said" | tail -20 >&2
    printf 'error: the desktop image was not made\n  found: its last words are above\n  do: see whether Debian packages can be had from a container\n' >&2
    exit 1
  fi
fi
cli run --rm --pull never --network none --log-driver none "$IMAGE" true
say "ready: $IMAGE"
