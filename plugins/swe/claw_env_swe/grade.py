"""Grading: in a fresh container, the repository with the agent's patch and nothing else of it.

Owns: applying, running the tests, and the statuses full, partial and no.
Does not own: which patches are allowed (`guard`), logs (`logs`), what a status is worth (`judge`).
"""

import ast
import hashlib
import re
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from claw.sdk import ClawError
from claw.sdk.sandbox import Ran, Sandbox

from . import guard
from .commands import command_of
from .instance import Instance
from .logs import parse
from .logs.python import WORDS
from .machine import opened, user_of, variables
from .settings import SweConfig
from .work import Work

Status = Literal["full", "partial", "no"]
MAX_LOG = 16 << 20
MAX_KEPT = 4096
"""grades of patches of nothing"""
MOVED = re.compile(rb"^(?:rename|copy) from (.+)$", re.MULTILINE)
NAMED = 5
"""tests that a reason names"""

_of_nothing: dict[str, "Grade"] = {}
_locks = tuple(threading.Lock() for _ in range(64))


@dataclass(frozen=True, slots=True)
class Grade:
    """What the tests said."""

    status: Status
    fraction: float
    """1 for full; for partial that of FAIL_TO_PASS; 0 for no"""
    reason: str
    results: Mapping[str, str] = field(default_factory=dict, repr=False)
    """test -> status, of the tests that decide"""
    test_s: float = 0.0
    """seconds that the tests took"""
    total_s: float = 0.0
    """seconds that the grading took, tests included"""

    @property
    def is_solved(self) -> bool:
        return self.status == "full"


def grade(work: Work, instance: Instance, config: SweConfig) -> Grade:
    """Grade what an agent has done. A patch of nothing is graded once in this process."""
    if work.problem:
        return nothing(work.problem)
    if work.patch.strip():
        return _graded(work, instance, config)
    key = hashlib.sha256(f"{instance!r}{config!r}".encode("utf-8", "replace")).hexdigest()
    with _locks[int(key, 16) % len(_locks)]:
        if key not in _of_nothing:
            if len(_of_nothing) >= MAX_KEPT:
                _of_nothing.clear()
            _of_nothing[key] = _graded(work, instance, config)
        return _of_nothing[key]


def grade_often(work: Work, instance: Instance, config: SweConfig, runs: int) -> Grade:
    """Grade `runs` times; tests that are not the same each time are flaky, and no grade counts."""
    if work.problem:
        return nothing(work.problem)
    grades = [_graded(work, instance, config) for _ in range(runs)]
    names = sorted({name for g in grades for name in g.results})
    flaky = [n for n in names if len({g.results.get(n) for g in grades}) > 1]
    if not flaky:
        return min(grades, key=lambda g: g.fraction)
    told = ", ".join(f"{n} ({_passes(grades, n)} of {runs})" for n in flaky[:NAMED])
    return nothing(f"{len(flaky)} tests are flaky: {told}")


def nothing(reason: str) -> Grade:
    return Grade("no", 0.0, reason)


def _passes(grades: list[Grade], name: str) -> int:
    return sum(g.results.get(name) == "passed" for g in grades)


def _graded(work: Work, instance: Instance, config: SweConfig) -> Grade:
    start = time.monotonic()
    with opened(instance, config) as box:
        problem = _put(box, work, instance, config)
        if problem:
            return nothing(problem)
        ran = box.run(
            ["bash", "-c", command_of(instance)], user=user_of(instance), cwd=instance.workdir,
            timeout_s=config.test_timeout_s, max_output=MAX_LOG, env=variables(instance),
        )
        text = _report(box, instance) if instance.suite.output else ran.text
    made = _decided(text, ran, instance)
    total = time.monotonic() - start
    return Grade(made.status, made.fraction, made.reason, made.results, ran.seconds, total)


def _put(box: Sandbox, work: Work, instance: Instance, config: SweConfig) -> str:
    """Apply the agent's patch, then the tests'; return why that cannot be."""
    if instance.expected:
        _move_r2e_tests(box)
    left_out: list[str] = []
    if work.patch.strip():
        told = _git(box, instance, ["apply", "--numstat", "-z", "-"], work.patch)
        if told.exit_code != 0:
            return f"the patch cannot be read: {told.text.strip()[:200]}"
        left_out = guard.refused(_touched(told.stdout, work.patch), instance)
        if left_out and config.tampering == "refuse":
            return f"refused: the patch touches {', '.join(left_out[:NAMED])}"
        words = ["apply", "--whitespace=nowarn", *(f"--exclude={_plain(p)}" for p in left_out), "-"]
        told = _git(box, instance, words, work.patch)
        if told.exit_code != 0:
            return f"the patch does not apply: {told.text.strip()[:200]}"
    if instance.test_patch:
        told = _git(box, instance, ["apply", "--whitespace=nowarn", "-"],
                    instance.test_patch.encode())
        if told.exit_code != 0:
            raise ClawError(f"the test patch of {instance.id!r} does not apply",
                            found=told.text.strip()[:500])
    return ""


def _git(box: Sandbox, instance: Instance, words: list[str], patch: bytes) -> Ran:
    return box.run(["git", *words], stdin=patch, user=user_of(instance), cwd=instance.workdir)


def _plain(path: str) -> str:
    """A path as a pattern that fits itself alone."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in path)


def _touched(numstat: bytes, patch: bytes) -> list[str]:
    """The paths in `git apply --numstat -z`, which names what is moved by its new name alone."""
    lines = [part.split(b"\t", 2) for part in numstat.split(b"\0")]
    found = [fields[2] for fields in lines if len(fields) == 3] + MOVED.findall(patch)
    return [_unquoted(path).decode("utf-8", "surrogateescape") for path in found]


def _unquoted(path: bytes) -> bytes:
    """git writes unusual names as C does, which Python's literals of bytes understand."""
    if not path.startswith(b'"'):
        return path
    try:
        return bytes(ast.literal_eval("b" + path.decode("ascii")))
    except (ValueError, SyntaxError):
        return path


def _move_r2e_tests(box: Sandbox) -> None:
    """R2E-Gym's images hold their tests apart; its script expects them under /root or /testbed."""
    script = ("[ -e /root/r2e_tests ] || { [ -e /r2e_tests ] && mv /r2e_tests /root/; }; "
              "[ -e /testbed/r2e_tests ] || ln -s /root/r2e_tests /testbed/r2e_tests; "
              "[ -e /root/run_tests.sh ] || { [ -e /testbed/run_tests.sh ] && "
              "mv /testbed/run_tests.sh /root/; }; true")
    box.run(["bash", "-c", script], user="0:0", cwd="/")


def _report(box: Sandbox, instance: Instance) -> str:
    ran = box.run(["head", "-c", str(MAX_LOG), "--", instance.suite.output],
                  user=user_of(instance), cwd=instance.workdir, max_output=MAX_LOG)
    return ran.stdout.decode("utf-8", "replace")


def _decided(text: str, ran: Ran, instance: Instance) -> Grade:
    if instance.by_exit_code:
        is_good = ran.exit_code == 0
        reason = f"the evaluation ended with {_how(ran)}"
        return Grade("full" if is_good else "no", float(is_good), reason,
                     {"evaluation": "passed" if is_good else "failed"})
    found = parse(instance.suite.framework, text)
    if instance.expected:
        return _matched(found, instance.expected, ran)
    must = {name: found.get(name, "missing") for name in instance.fail_to_pass}
    keep = {name: found.get(name, "missing") for name in instance.pass_to_pass}
    bad = [name for name, status in {**must, **keep}.items() if status != "passed"]
    good = sum(status == "passed" for status in must.values())
    kept = sum(status == "passed" for status in keep.values())
    reason = (f"{good} of {len(must)} FAIL_TO_PASS and {kept} of {len(keep)} PASS_TO_PASS passed"
              + (f"; not: {', '.join(bad[:NAMED])}" if bad else "")
              + ("" if found else f"; the log names no test, and it ended with {_how(ran)}: "
                                  f"{text.strip()[-200:]}"))
    if kept < len(keep) or not good:
        return Grade("no", 0.0, reason, must | keep)
    return Grade("full" if good == len(must) else "partial", good / len(must), reason, must | keep)


def _matched(found: Mapping[str, str], expected: Mapping[str, str], ran: Ran) -> Grade:
    """R2E-Gym: by the last part of a test's id, each status must be the expected one."""
    got = {_short(name): status for name, status in found.items()}
    want = {_short(name): _word(status) for name, status in expected.items()}
    wrong = sorted(n for n in want.keys() | got.keys() if got.get(n) != want.get(n))
    reason = (f"{len(want.keys() - set(wrong))} of {len(want)} expected statuses"
              + (f"; not: {', '.join(wrong[:NAMED])}" if wrong else "")
              + ("" if found else f"; the log names no test, and it ended with {_how(ran)}"))
    return Grade("no" if wrong else "full", float(not wrong), reason, got)


def _short(name: str) -> str:
    return ".".join(name.split("::")[1:]) or name


def _word(status: str) -> str:
    return WORDS.get(status.upper(), status.lower())


def _how(ran: Ran) -> str:
    if ran.timed_out:
        return f"its time over ({ran.seconds:.0f} s)"
    return "no memory left" if ran.out_of_memory else f"exit code {ran.exit_code}"
