"""Grading: after the agent, the task's own tests say how much of it is done.

Owns: the order of Harbor's verifier, and what keeps an agent from grading itself.
Does not own: reading reward files (claw.sdk.formats), what a grade is worth (`judge`).

The tests are not in the sandbox before this. What an earlier hand left as a reward is removed; the
tests run in a fresh environment, as another user than the agent wherever the task lets the agent be
one, and then nothing that the agent left running can read them or write a reward. Otherwise it is
ended first. What the tests leave running is ended before the reward is read. The exit code decides
nothing.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from claw.sdk.formats import reward, summary
from claw.sdk.formats.folder import Collect, TaskFolder
from claw.sdk.formats.harbor import substituted
from claw.sdk.sandbox import Ran, Sandbox, SandboxError

from .machine import LOGS, ROOT, Machine, clean_copy, is_guarded, variables
from .settings import TerminalConfig

log = logging.getLogger(__name__)

VERIFIER = f"{LOGS}/verifier"
REWARDS = ("reward.json", "rewards.json", "reward.txt", "ctrf.json")
MAX_LOG = 1 << 20
CLEAR = f"""
rm -rf -- /tests
if [ -L {VERIFIER} ] || ! [ -d {VERIFIER} ]; then rm -rf -- {VERIFIER} && mkdir -p {VERIFIER}; fi
cd {VERIFIER} && rm -rf -- {' '.join(REWARDS)} && mkdir -m "$1" /tests && chown -- "$2" /tests
"""
READ = f"""
cd {VERIFIER} || exit 0
for name in {' '.join(REWARDS)}; do
  if [ -f "$name" ] && ! [ -L "$name" ]; then
    printf '%s %s\\n' "$name" "$(head -c {reward.MAX_BYTES} -- "$name" | base64 -w0)"
  fi
done
"""


@dataclass(frozen=True, slots=True)
class Grade:
    """What the tests said."""

    fraction: float
    """of the tests that passed, or the reward where no tests were reported; 0 to 1"""
    is_solved: bool
    reason: str
    rewards: Mapping[str, float]
    log: str
    """the end of what the tests printed"""


def grade(
    box: Sandbox, folder: TaskFolder, machine: Machine, config: TerminalConfig
) -> Grade:
    """Grade what is in the sandbox now. The agent must not act any more."""
    if config.grading == "shared":
        if config.processes == "kill" or (
            config.processes == "auto" and not is_guarded(box, machine)
        ):
            box.sweep()
        return _graded(box, folder, machine, config)
    box.sweep()
    fresh = clean_copy(box, folder, machine)
    if fresh is None:
        return _nothing("the working directory cannot be copied: unreadable, or too large", "")
    try:
        return _graded(fresh, folder, machine, config)
    finally:
        fresh.close()


def _graded(
    box: Sandbox, folder: TaskFolder, machine: Machine, config: TerminalConfig
) -> Grade:
    for hook in folder.collect:
        _collect(box, hook, machine)
    _clear(box, machine)
    box.put(dict(folder.tests), "/tests", mode=0o755, user=machine.grader)
    ran = box.run(
        list(folder.test_command), user=machine.grader, cwd=machine.spec.workdir,
        timeout_s=folder.verifier_timeout_s * config.timeout_factor, max_output=MAX_LOG,
        env=machine.env | substituted(dict(folder.verifier_env), variables(config)),
    )
    box.sweep()  # nothing that the tests started may write after this
    said = ran.text
    if folder.grading == "pytest":
        return _from_summary(said, ran)
    return _from_files(_files(box, machine), said, ran, config)


def _collect(box: Sandbox, hook: Collect, machine: Machine) -> None:
    ran = box.run(hook.command, user=hook.user or machine.agent, timeout_s=hook.timeout_s,
                  env=machine.env, cwd=machine.spec.workdir)
    if ran.exit_code != 0:  # the agent's own program may be what fails; the tests will tell
        log.info("collect hook %r ended with %s: %s", hook.command[:80], ran.exit_code,
                 ran.text[:200])


def _clear(box: Sandbox, machine: Machine) -> None:
    """Nothing of an earlier hand is left, and what the agent left running cannot read the tests."""
    mode = "700" if is_guarded(box, machine) else "755"
    ran = box.run(["bash", "-c", CLEAR, "bash", mode, machine.grader], user=ROOT, cwd="/")
    if ran.exit_code != 0:
        raise SandboxError("the place for the tests cannot be cleared", found=ran.text[:300])


def _files(box: Sandbox, machine: Machine) -> dict[str, bytes]:
    import base64

    ran = box.run(["bash", "-c", READ], user=machine.grader, cwd="/",
                  max_output=2 * len(REWARDS) * reward.MAX_BYTES)
    pairs = (line.split(" ", 1) for line in ran.stdout.decode("ascii", "replace").splitlines())
    return {pair[0]: base64.b64decode(pair[1]) for pair in pairs if len(pair) == 2}


def _from_summary(said: str, ran: Ran) -> Grade:
    tests = summary.read(said)
    if tests is None:
        return _nothing(f"the tests printed no summary{_how(ran)}", said)
    return _counted(tests, {"reward": float(tests.passed == tests.total)}, said)


def _from_files(
    files: Mapping[str, bytes], said: str, ran: Ran, config: TerminalConfig
) -> Grade:
    try:
        rewards = reward.read(files)
    except reward.RewardError as error:
        return _nothing(f"{error}{_how(ran)}", said)
    tests = reward.from_ctrf(files["ctrf.json"]) if "ctrf.json" in files else None
    value = min(1.0, max(0.0, reward.one(rewards)))
    if "rewards.json" in files and "reward.json" not in files:
        log.warning("the verifier wrote rewards.json; the name is reward.json")
    if tests is None or config.score == "reward" or value >= 1.0:
        return Grade(value, value >= 1.0, f"reward {value:g}", rewards, said[-4000:])
    return _counted(tests, rewards, said)


def _counted(tests: reward.Counts, rewards: Mapping[str, float], said: str) -> Grade:
    failed = f"; failed: {', '.join(tests.failed[:5])}" if tests.failed else ""
    reason = f"{tests.passed} of {tests.total} tests passed{failed}"
    # the reward decides what is solved; a report of passed tests alone does not
    return Grade(tests.fraction, reward.one(rewards) >= 1.0, reason, rewards, said[-4000:])


def _nothing(reason: str, said: str) -> Grade:
    return Grade(0.0, False, reason, {}, said[-4000:])


def _how(ran: Ran) -> str:
    if ran.timed_out:
        return f" (the tests took longer than {ran.seconds:.0f} s)"
    return f" (the tests ended with {ran.exit_code})"
