"""Reward files and test reports that a verifier leaves behind.

Owns: what counts as a reward, and every way in which a file does not.
Does not own: where the files are, who may write them (the terminal plugin).
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MAX_BYTES = 1 << 20


class RewardError(ValueError):
    """A reward file that says no reward."""


@dataclass(frozen=True, slots=True)
class Counts:
    """How many of a verifier's tests passed."""

    passed: int
    total: int
    failed: tuple[str, ...] = ()
    """names of the first tests that did not pass"""

    @property
    def fraction(self) -> float:
        return self.passed / self.total if self.total else 0.0


def read(files: Mapping[str, bytes]) -> dict[str, float]:
    """Return name -> number from `reward.json`, `rewards.json` or `reward.txt`, in this order."""
    for name in ("reward.json", "rewards.json"):
        if name in files:
            return from_json(files[name])
    if "reward.txt" in files:
        return {"reward": _number(_text(files["reward.txt"]).strip())}
    raise RewardError("no reward file")


def from_json(data: bytes) -> dict[str, float]:
    """Return the numbers of a flat object; a bare number is the reward itself."""
    try:
        value = json.loads(_text(data), parse_constant=_not_a_number)
    except (ValueError, RecursionError) as error:
        raise RewardError(f"reward.json: {error}") from error
    if isinstance(value, dict) and value:
        return {str(key): _finite(number) for key, number in value.items()}
    return {"reward": _finite(value)}


def one(rewards: Mapping[str, float]) -> float:
    """Return the reward: the key `reward`, else the mean of all."""
    if "reward" in rewards:
        return rewards["reward"]
    return sum(rewards.values()) / len(rewards)


def from_ctrf(data: bytes) -> Counts | None:
    """Return the counts of a CTRF report; None for what is none."""
    try:
        tests = json.loads(_text(data))["results"]["tests"]
        status = [(str(t.get("name")), t.get("status")) for t in tests]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    counted = [(name, s) for name, s in status if s != "skipped"]
    failed = [name[:200] for name, s in counted if s != "passed"]
    return Counts(len(counted) - len(failed), len(counted), tuple(failed[:20])) if counted else None


def _text(data: bytes) -> str:
    if len(data) > MAX_BYTES:
        raise RewardError(f"the file has {len(data)} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RewardError(str(error)) from error


def _number(text: str) -> float:
    try:
        return _finite(float(text))
    except ValueError as error:
        raise RewardError(f"reward.txt: {text[:80]!r} is no finite number") from error


def _finite(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RewardError(f"{type(value).__name__} is no number")
    try:
        number = float(value)
    except OverflowError as error:
        raise RewardError("the number is too large") from error
    if not math.isfinite(number):
        raise RewardError(f"{number} is not finite")
    return number


def _not_a_number(name: str) -> float:
    raise RewardError(f"{name} is not finite")
