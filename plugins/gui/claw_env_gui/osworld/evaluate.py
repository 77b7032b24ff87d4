"""The score of an episode, by OSWorld's rules.

Owns: postconfig, the order of checks, `and` and `or`, what FAIL means.
Does not own: getters and metrics themselves.
"""

import logging
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from claw.sdk.sandbox import SandboxError

from ..actions import FAIL, Unreadable
from ..machine import Failed, Machine
from . import setup
from .getters import Scene, get
from .metrics import METRICS
from .task import Check, DesktopTask

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Score:
    """How much of a task is done."""

    value: float
    """0 to 1"""
    reason: str

    @property
    def is_solved(self) -> bool:
        return self.value >= 1.0


def score(machine: Machine, task: DesktopTask, last: str, *, step_s: float = 60.0,
          cache: Path | None = None) -> Score:
    """Return the score; `last` is the kind of the policy's last action."""
    if task.is_infeasible:
        return Score(1.0, "rightly given up") if last == FAIL else Score(
            0.0, "the task cannot be done, and that was not said")
    if last == FAIL:
        return Score(0.0, "given up, though the task can be done")
    try:
        setup.run(setup.Stage(machine, task, step_s, cache), task.postconfig)
    except setup.SetupError as error:  # the policy has closed what was to be saved
        log.info("%s", error)
    with tempfile.TemporaryDirectory(prefix="claw-gui-") as folder:
        return _together(Scene(machine, task, Path(folder), step_s, cache))


def _together(scene: Scene) -> Score:
    """`and` stops at the first 0, `or` at the first 1; else the mean, or the best."""
    values, reasons = [], []
    for check in scene.task.checks:
        value, reason = _value(scene, check)
        values.append(value)
        reasons.append(f"{check.func} {value:g}{reason}")
        if scene.task.conj == "and" and value == 0.0:
            return Score(0.0, "; ".join(reasons))
        if scene.task.conj == "or" and value == 1.0:
            return Score(1.0, "; ".join(reasons))
    best = max(values) if scene.task.conj == "or" else sum(values) / len(values)
    return Score(best, "; ".join(reasons))


def _value(scene: Scene, check: Check) -> tuple[float, str]:
    """Return what a metric gives; a file that is missing, or no such file, is 0."""
    try:
        there = get(scene, check.result)
        if there is None and check.result is not None:
            return 0.0, f" (there is no {_about(check)})"
        expected = get(scene, check.expected)
    except (SandboxError, Failed, Unreadable, setup.SetupError) as error:
        return 0.0, f" ({str(error)[:200]})"
    arguments: Sequence[object] = (there,) if check.expected is None else (there, expected)
    try:
        value = METRICS[check.func](*arguments, **check.options)
    except ImportError:
        raise  # a package of the plugin is missing: that is no score
    except Exception as error:  # what a policy left may be anything
        log.info("metric %s of task %s: %r", check.func, scene.task.id, error)
        return 0.0, f" ({type(error).__name__}: {str(error)[:160]})"
    return min(1.0, max(0.0, float(value))), ""


def _about(check: Check) -> str:
    spec = check.result or {}
    return str(spec.get("path") or spec.get("command") or spec.get("type"))[:120]
