"""The gold solution: what a task's author did, run in the agent's place.

Owns: /solution in the sandbox, for as long as it runs.
Does not own: the grading (`grade`).
"""

from typing import Any

from claw.sdk.formats.harbor import substituted
from claw.sdk.sandbox import SandboxError

from .env import TerminalEnv
from .machine import ROOT, variables


def play(env: Any) -> list[str] | None:
    """Run solution/solve.sh as the agent; return what the policy says to finish."""
    assert isinstance(env, TerminalEnv), "claw_env makes no other"
    folder, machine, box = env.folder, env.machine, env.box
    if not folder.solution_command:
        return None
    box.put(dict(folder.solution), "/solution", mode=0o755, user=ROOT)
    ran = box.run(
        list(folder.solution_command), user=machine.agent, cwd=machine.spec.workdir,
        timeout_s=(folder.agent_timeout_s or 3600.0) * env.config.timeout_factor,
        env=machine.env | substituted(dict(folder.solution_env), variables(env.config)),
    )
    box.run(["rm", "-rf", "--", "/solution"], user=ROOT, cwd="/")
    if ran.timed_out:
        raise SandboxError(f"the solution of {folder.name!r} took too long",
                           found=f"{ran.seconds:.0f} s: {ran.text[-300:]}")
    if ran.exit_code != 0:
        raise SandboxError(f"the solution of {folder.name!r} fails",
                           found=f"exit code {ran.exit_code}: {ran.text[-500:]}")
    return [env.last_word]
