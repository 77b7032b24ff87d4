"""The fenced network: its sandboxes reach the outside, but not this machine, private addresses or
each other.

Owns: one bridge network per process and its firewall rules, from the first fenced sandbox to the
last one's end.
Does not own: which sandbox asks for it. An engine's own `--internal` is no fence: every port that
the host listens on is reachable from it.

The rules are set by a short-lived container in the engine's own network, so that this works for
anybody who may speak to the engine, also when its machine is another one.
"""

import atexit
import os
import secrets
import threading
from dataclasses import dataclass

from claw.sdk.sandbox import engine, owner
from claw.sdk.sandbox.spec import BASE_IMAGE, SandboxError

PRIVATE = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "169.254.0.0/16",
           "127.0.0.0/8", "224.0.0.0/4", "240.0.0.0/4")
UP = r"""
set -e; bridge=$1; shift
iptables -w -I INPUT -i "$bridge" -j DROP
for range; do iptables -w -I FORWARD -i "$bridge" -d "$range" -j DROP; done
for server in $(sed -n 's/^nameserver  *\([0-9.]*\).*/\1/p' /etc/resolv.conf); do
  for kind in udp tcp; do
    iptables -w -I FORWARD -i "$bridge" -d "$server" -p $kind --dport 53 -j ACCEPT
  done
done
if ip6tables -w -L INPUT >/dev/null 2>&1; then
  ip6tables -w -I INPUT -i "$bridge" -j DROP; ip6tables -w -I FORWARD -i "$bridge" -j DROP
fi
"""
DOWN = r"""
for tool in iptables ip6tables; do for chain in INPUT FORWARD; do
  $tool -w -S $chain 2>/dev/null | grep -F -- "-i $1 " | sed 's/^-A/-D/' |
  while read -r rule; do $tool -w $rule; done
done; done
"""
RULES_S = 30
LIFETIME_S = 7 * 86400.0

_lock = threading.Lock()
_standing: dict[int, "_Fence"] = {}
"""by process: a fork builds its own"""


@dataclass(slots=True)
class _Fence:
    network_id: str
    name: str
    members: int = 0


def join() -> str:
    """Return the name of the fenced network, which the first member of this process makes."""
    with _lock:
        standing = _standing.get(os.getpid())
        if standing is None:
            standing = _standing[os.getpid()] = _build()
        standing.members += 1
        return standing.name


def leave() -> None:
    """Tell that a member has gone; the last one takes the network along."""
    with _lock:
        standing = _standing[os.getpid()]
        standing.members -= 1
        if not standing.members:
            del _standing[os.getpid()]
            remove(standing.network_id, standing.name)


def _build() -> _Fence:
    name = f"claw-{secrets.token_hex(4)}"  # also the bridge's name: at most 15 letters
    with engine.speaking("making a fenced network"):
        made = engine.api().create_network(
            name, driver="bridge", labels=owner.labels(LIFETIME_S),
            options={"com.docker.network.bridge.name": name,
                     "com.docker.network.bridge.enable_icc": "false"})
    try:
        _rules(UP, name, *PRIVATE)
    except SandboxError:
        remove(made["Id"], name)
        raise
    return _Fence(made["Id"], name)


@atexit.register
def _at_exit() -> None:
    standing = _standing.pop(os.getpid(), None)
    if standing is not None:
        remove(standing.network_id, standing.name)


def remove(network_id: str, name: str) -> None:
    """Remove a network and its rules; one that is gone is fine."""
    import docker

    _rules(DOWN, name)
    with engine.speaking("removing a fenced network"):
        api = engine.api()
        try:
            for container in (api.inspect_network(network_id).get("Containers") or {}):
                api.remove_container(container, force=True, v=True)
            api.remove_network(network_id)
        except docker.errors.NotFound:
            pass


def _rules(script: str, *words: str) -> None:
    """Run a script of firewall rules in the engine's own network."""
    api = engine.api()
    with engine.speaking("setting firewall rules", BASE_IMAGE):
        helper = api.create_container(
            BASE_IMAGE, ["sh", "-c", script, "sh", *words], user="0:0",
            labels=owner.labels(RULES_S), host_config=api.create_host_config(
                network_mode="host", cap_drop=["ALL"], cap_add=["NET_ADMIN", "NET_RAW"],
                security_opt=["no-new-privileges"], mem_limit="64m",
                log_config={"type": "json-file", "config": {"max-size": "64k"}}))["Id"]
        try:
            api.start(helper)
            code = api.wait(helper, timeout=RULES_S)["StatusCode"]
            said = api.logs(helper, tail=5).decode("utf-8", "replace").strip()
        finally:
            api.remove_container(helper, force=True, v=True)
    if code != 0:
        raise SandboxError("the fence could not be built", found=said or f"exit code {code}",
                           do="use network='none', or see docs/sandboxes.md")
