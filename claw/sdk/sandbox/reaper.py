"""What dead processes left behind, removed; and what this process must not leave.

Owns: the sweep over containers, networks and snapshots, once when the first sandbox opens.
Does not own: the leash, which ends a container with its owner within a second (agent.py).
"""

import atexit
import contextlib
from collections.abc import Callable, Mapping
from functools import cache

from claw.sdk.sandbox import engine, fence, owner


@cache
def reap_once() -> None:
    """Reap, the first time that a process opens a sandbox."""
    reap()


def reap() -> list[str]:
    """Remove what belongs to nobody any more; return what was removed."""
    return [*_containers(), *_networks(), *_snapshots(owner.is_abandoned)]


def _containers() -> list[str]:
    import docker

    api, gone = engine.api(), []
    with engine.speaking("looking for abandoned sandboxes"):
        for found in api.containers(all=True, filters={"label": owner.OWNER}):
            if owner.is_abandoned(found.get("Labels") or {}):
                with contextlib.suppress(docker.errors.APIError):  # another reaper was faster
                    api.remove_container(found["Id"], force=True, v=True)
                gone.append(found["Id"])
    return gone


def _networks() -> list[str]:
    api, gone = engine.api(), []
    with engine.speaking("looking for abandoned networks"):
        for found in api.networks(filters={"label": owner.OWNER}):
            if owner.is_abandoned(found.get("Labels") or {}):
                fence.remove(found["Id"], found["Name"])
                gone.append(found["Id"])
    return gone


def _snapshots(is_over: Callable[[Mapping[str, str], str], bool]) -> list[str]:
    import docker

    api, gone = engine.api(), []
    with engine.speaking("looking for abandoned snapshots"):
        for found in api.images(filters={"label": owner.SNAPSHOT}):
            if is_over(found.get("Labels") or {}, owner.SNAPSHOT):
                with contextlib.suppress(docker.errors.APIError):  # in use, or gone already
                    api.remove_image(found["Id"], force=True)
                    gone.append(found["Id"])
    return gone


@cache
def remove_at_exit() -> None:
    """Promise to remove this process's unnamed snapshots when it ends."""
    atexit.register(lambda: _snapshots(lambda labels, key: labels.get(key) == owner.me()))
