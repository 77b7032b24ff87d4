"""What an episode needs of a computer with a screen, wherever it is.

Owns: the contract that a container (`desktop`) and a virtual machine (`remote`) fulfil.
Does not own: either of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from claw.sdk.sandbox import Ran

from .actions import Action
from .tree import Node


class Failed(Exception):
    """Something that could not be done, in words for the policy."""


@dataclass(frozen=True, slots=True)
class Window:
    """A window that the window manager shows or has hidden."""

    id: int
    title: str
    kind: tuple[str, ...]
    """the names by which its program calls it"""
    box: tuple[int, int, int, int]
    """x, y, width, height"""
    is_active: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """An application that ended: 0 by itself, below 0 by a signal, else with a failure."""

    name: str
    code: int


class Machine(Protocol):
    """One caller at a time."""

    size: tuple[int, int]
    is_remote: bool
    ended: list[Ended]

    def screenshot(self) -> bytes: ...

    def nodes(self) -> list[Node]: ...

    def windows(self) -> list[Window]: ...

    def settle(self, still_s: float = 0.25, limit_s: float = 2.0) -> bool: ...

    def do(self, action: Action) -> None: ...

    def launch(self, argv: Sequence[str]) -> None: ...

    def activate(self, window: Window) -> None: ...

    def close_window(self, window: Window) -> None: ...

    def run(self, command: str | Sequence[str], *, timeout_s: float = 60.0, stdin: bytes = b"",
            env: Mapping[str, str] = {}) -> Ran: ...

    def read(self, path: str, *, max_bytes: int = 16 << 20) -> bytes | None: ...

    def write(self, path: str, data: bytes) -> None: ...

    def close(self) -> None: ...
