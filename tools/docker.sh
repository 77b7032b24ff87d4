#!/usr/bin/env bash
# Brings up a Docker engine and the base image of sandboxes, from whatever state the machine is in:
# no engine, an engine that is down, one that lost its images, or one that is ready (0.4 s).
#   as root on Debian or Ubuntu   installs the engine and makes the image from Debian packages
#   elsewhere                     uses the engine that answers, or says what to do
#   tools/docker.sh --image-only  never installs or starts an engine
# CLAW_IMAGE_CACHE keeps the image's tar: /var/cache/claw for root, else ~/.cache/claw.
set -euo pipefail

IMAGE=claw/base:bookworm
PACKAGES=python3,git,ca-certificates,procps,tmux,gawk,patch,make,jq,sqlite3,file,less,xz-utils,unzip,bc,iproute2,iptables
if [ "$(id -u)" = 0 ]; then CACHE="${CLAW_IMAGE_CACHE:-/var/cache/claw}"
else CACHE="${CLAW_IMAGE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/claw}"; fi
TAR="$CACHE/base-bookworm.tar"
SOURCES=/etc/apt/sources.list.d/debian.sources
PID_FILE=/var/run/docker.pid
LOG=/var/log/dockerd.log

say() { echo "[docker ${SECONDS}s] $*" >&2; }
fail() { printf 'error: %s\n  found: %s\n  do: %s\n' "$1" "$2" "$3" >&2; exit 1; }

# The server is asked, not the client: a docker command without an engine is common.
cli() { if [ -x /usr/bin/docker ]; then /usr/bin/docker "$@"; else docker "$@"; fi; }
engine_answers() { timeout 10 bash -c 'if [ -x /usr/bin/docker ]; then d=/usr/bin/docker; else d=docker; fi
  "$d" version --format "{{.Server.Version}}"' >/dev/null 2>&1; }
can_install() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; }

install_packages() {
  say "installing $*"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

# A killed engine leaves its pid file, and refuses to start beside it.
drop_stale_pid_file() {
  [ -s "$PID_FILE" ] || return 0
  local pid state name
  pid=$(cat "$PID_FILE")
  state=$(sed -n 's/^State:[[:space:]]*\(.\).*/\1/p' "/proc/$pid/status" 2>/dev/null || true)
  name=$(cat "/proc/$pid/comm" 2>/dev/null || true)
  if [ -z "$state" ] || [ "$state" = Z ] || [ "$name" != dockerd ]; then rm -f "$PID_FILE"; fi
}

start_engine() {
  if [ -d /run/systemd/system ]; then systemctl start docker; else
    drop_stale_pid_file
    setsid /usr/sbin/dockerd >"$LOG" 2>&1 </dev/null &
  fi
  for _ in $(seq 300); do engine_answers && return 0; sleep 0.1; done
  tail -5 "$LOG" >&2 2>/dev/null || true
  fail "the Docker engine did not start" "its last words are above (all of them: $LOG)" \
    "start it by hand: dockerd"
}

ensure_engine() {
  engine_answers && return 0
  if [ "${1:-}" = --image-only ] || { ! [ -x /usr/sbin/dockerd ] && ! can_install; }; then
    fail "no Docker engine answers" "${DOCKER_HOST:-unix:///var/run/docker.sock}, user $(id -un)" \
      "install and start one (https://docs.docker.com/engine/install; on macOS Docker Desktop or colima), or let your user reach it (usermod -aG docker $(id -un), then log in again), or run this as root on Debian or Ubuntu"
  fi
  if ! [ -x /usr/sbin/dockerd ]; then install_packages docker.io iptables mmdebstrap; fi
  if [ "$(id -u)" != 0 ]; then
    fail "the Docker engine is installed but down" "user $(id -un)" "start it: sudo systemctl start docker"
  fi
  start_engine
}

# From Debian's packages where this is Debian 12, so that no image registry is needed.
can_make_tar() {
  grep -qs bookworm "$SOURCES" && { command -v mmdebstrap >/dev/null 2>&1 || can_install; }
}

make_tar() {
  [ -s "$TAR" ] && return 0
  command -v mmdebstrap >/dev/null 2>&1 || install_packages mmdebstrap
  mkdir -p "$CACHE"
  say "making $TAR (half a minute)"
  local mode=auto; if [ "$(id -u)" != 0 ]; then mode=unshare; fi
  # the name must not end in .tmp without --format: mmdebstrap would make a folder
  mmdebstrap --quiet --mode="$mode" --variant=minbase --include="$PACKAGES" \
    --aptopt='Acquire::Languages "none"' --dpkgopt=force-unsafe-io \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' \
    --customize-hook='chroot "$1" groupadd --gid 1000 agent' \
    --customize-hook='chroot "$1" useradd --uid 1000 --gid 1000 --create-home --shell /bin/bash agent' \
    --customize-hook='chroot "$1" install -d -o 1000 -g 1000 /work' \
    --customize-hook='chroot "$1" git config --system user.name agent' \
    --customize-hook='chroot "$1" git config --system user.email agent@localhost' \
    --customize-hook='chroot "$1" git config --system --add safe.directory "*"' \
    --customize-hook='rm -rf "$1"/var/cache/apt/* "$1"/var/lib/apt/lists/*' \
    --format=tar bookworm "$TAR.tmp" <"$SOURCES"
  mv "$TAR.tmp" "$TAR"
}

from_registry() {
  say "making $IMAGE from debian:bookworm-slim (this is no Debian 12 with mmdebstrap)"
  cli build -q -t "$IMAGE" - <<DOCKERFILE
FROM debian:bookworm-slim
ENV LANG=C.UTF-8
RUN apt-get update && apt-get install -y --no-install-recommends ${PACKAGES//,/ } && rm -rf /var/lib/apt/lists/* \
 && groupadd --gid 1000 agent && useradd --uid 1000 --gid 1000 --create-home --shell /bin/bash agent \
 && install -d -o 1000 -g 1000 /work && git config --system user.name agent \
 && git config --system user.email agent@localhost && git config --system --add safe.directory '*'
WORKDIR /work
CMD ["bash"]
DOCKERFILE
}

ensure_image() {
  cli image inspect "$IMAGE" >/dev/null 2>&1 && return 0
  if [ -s "$TAR" ] || can_make_tar; then
    make_tar
    say "importing $IMAGE"
    cli import --change 'ENV LANG=C.UTF-8' --change 'WORKDIR /work' --change 'CMD ["bash"]' \
      "$TAR" "$IMAGE" >/dev/null
  else
    from_registry >/dev/null
  fi
}

ensure_engine "${1:-}"
ensure_image
cli run --rm --pull never --network none --log-driver none "$IMAGE" true
say "ready: $IMAGE"
