"""Images of sandboxes: built from a folder with a Dockerfile, and what they say of themselves.

Owns: one build per content, however many ask at once.
Does not own: what a sandbox does with an image (`container`), snapshots.
"""

import threading
import time
from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from claw.sdk.formats.folder import digest
from claw.sdk.sandbox import engine
from claw.sdk.sandbox.spec import SandboxError

BUILT = "claw/task"
MAX_TAIL = 20
"""lines of a failed build that are shown"""

_building: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)


@dataclass(frozen=True, slots=True)
class About:
    """What an image says of itself."""

    user: str
    """empty: root"""
    workdir: str
    """empty: /"""
    id: str = ""
    """the engine's digest of it"""


@lru_cache(maxsize=1024)
def about(image: str) -> About:
    """Return what an image says; SandboxError when the engine has none of that name."""
    with engine.speaking("looking at an image", image):
        told = engine.api().inspect_image(image)
    config = told.get("Config") or {}
    return About(config.get("User") or "", config.get("WorkingDir") or "", told.get("Id") or "")


def build(folder: Path, *, timeout_s: float = 600.0) -> str:
    """Build `folder`'s Dockerfile and return the image; one of the same content is used again.

    The engine runs what the Dockerfile says, with the network that builds have. The image stays.
    """
    if not (folder / "Dockerfile").is_file():
        raise SandboxError("there is nothing to build", found=f"no Dockerfile in {folder}")
    tag = f"{BUILT}:{digest(folder)[:24]}"
    with _building[tag]:
        if not exists(tag):
            _build(folder, tag, timeout_s)
    return tag


def exists(tag: str) -> bool:
    """Whether the engine has an image of that name."""
    import docker

    with engine.speaking("looking for an image", tag):
        try:
            engine.api().inspect_image(tag)
        except docker.errors.ImageNotFound:
            return False
    return True


def _build(folder: Path, tag: str, timeout_s: float) -> None:
    import urllib3

    said: list[str] = []
    until = time.monotonic() + timeout_s
    with engine.speaking("building an image", tag):
        # the SDK's timeout is that of one silence; the deadline of the whole is ours
        stream = engine.api().build(
            path=str(folder), tag=tag, rm=True, forcerm=True, pull=False, decode=True,
            timeout=int(timeout_s) + 1, labels={"claw.task": folder.name},
        )
        too_late = SandboxError(f"{folder}/Dockerfile took too long to build",
                                found=f"{timeout_s:g} s")
        try:
            for part in stream:
                said = [*said, str(part.get("stream") or part.get("error") or "").rstrip()]
                said = said[-MAX_TAIL:]
                if part.get("error"):
                    raise SandboxError(f"{folder}/Dockerfile cannot be built",
                                       found="\n".join(line for line in said if line)[-2000:])
                if time.monotonic() > until:
                    stream.close()
                    raise too_late
        except urllib3.exceptions.ReadTimeoutError:  # the SDK lets it through while it streams
            raise too_late from None
    if not exists(tag):
        raise SandboxError(f"{folder}/Dockerfile made no image", found="\n".join(said)[-2000:])
