"""Errors that speak to the person, and the boundary that turns a failure into data.

Owns: the exception classes and the classification of failures.
Does not own: printing (the command line) or retrying (the caller that crossed the boundary).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum


class ClawError(Exception):
    """Something a person can fix.

    A message has four parts: what happened, what was found, what is allowed, what to do next.
    Parts that say nothing are left out, never filled with noise.
    """

    exit_code = 1

    def __init__(self, what: str, *, found: str = "", allowed: str = "", do: str = "") -> None:
        self.what, self.found, self.allowed, self.do = what, found, allowed, do
        labels = (("found", found), ("allowed", allowed), ("do", do))
        lines = [f"  {label}: {text}" for label, text in labels if text]
        super().__init__("\n".join([what, *lines]))


class UsageError(ClawError):
    """The words or settings a person typed are wrong (exit code 2)."""

    exit_code = 2


class WireError(ClawError):
    """A peer sent something that is not a message of this protocol."""


class Boundary(StrEnum):
    """The border a failure crossed first; stored with what failed."""

    ENV = "env"
    """plugin code: an environment, a judge or an app of a plugin"""
    POLICY = "policy"
    """a rollout worker, or the wire to it"""
    JUDGE = "judge"
    """a judge, or the endpoint that it asks"""
    SANDBOX = "sandbox"
    """a container or process in which an environment acts"""


class BoundaryError(Exception):
    """A failure with the boundary it crossed. A bad rollout is data, not a crash."""

    def __init__(self, where: Boundary, cause: BaseException) -> None:
        self.where, self.cause = where, cause
        super().__init__(f"{where}: {type(cause).__name__}: {cause}")


@contextmanager
def boundary(where: Boundary) -> Iterator[None]:
    """Attribute whatever escapes the block to `where`, once: the innermost boundary wins."""
    try:
        yield
    except BoundaryError:
        raise
    except Exception as error:
        raise BoundaryError(where, error) from error


def nearest(word: str, known: list[str]) -> str:
    """Return " did you mean 'x'?" when a known word is close to `word`, else an empty string."""
    from difflib import get_close_matches

    close = get_close_matches(word, known, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else ""


def where(error: BaseException) -> str:
    """Return `file:line` of the last line that ran before `error`, or `?`."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace else "?"
