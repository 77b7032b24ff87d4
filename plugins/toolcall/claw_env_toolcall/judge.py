"""The judge of this plugin: a checker, not a model.

Owns: votes on steps, the outcome of an episode, hints from failed calls.
Does not own: comparing answers (`answers`).
"""

from claw.sdk import Case, Task, Verdict

from .answers.grade import grade, outcome
from .env import Step, ToolEnv
from .settings import ToolcallConfig

MAX_HINTS = 3
NO_ANSWER = "Write the final answer as \\boxed{answer}, with the answer between the braces."


class ToolJudge:
    """Votes +1 for a step whose calls all worked and -1 for one with a failed call.

    The last step gets +1 for a right answer, -1 for another one, and the outcome as its number.
    """

    name = "toolcall"

    def __init__(self, config: ToolcallConfig) -> None:
        self._config = config

    async def judge(self, case: Case) -> Verdict:
        """Judge a step of a ToolEnv; abstain from anything else."""
        env, task = case.metadata.get("env"), case.task
        index = case.metadata.get("index", -1)
        if not isinstance(env, ToolEnv) or task is None or not 0 <= index < len(env.steps):
            return Verdict(reason="not a step of this plugin's environment")
        step = env.steps[index]
        return await self._last(env, step, task) if case.final else self._step(step)

    def _step(self, step: Step) -> Verdict:
        errors = step.errors
        if not errors:
            return Verdict(1, (1,), reason="every call worked")
        return Verdict(-1, (-1,), hints=self._hints(step), reason=_names(step))

    async def _last(self, env: ToolEnv, step: Step, task: Task) -> Verdict:
        """At a limit of turns the last step is a call, and there is no answer."""
        text = "" if step.observations or step.is_cut else step.text
        found = await grade(task, text, self._config.answers)
        value = outcome(found.score, env.toolbox.num_calls, self._config)
        vote = 1 if found.is_right else -1
        if step.observations:
            vote = self._step(step).vote or 0
        reason = "cut at max_tokens" if step.is_cut else found.reason
        return Verdict(vote, (vote,), value, self._hints(step), reason)

    def _hints(self, step: Step) -> tuple[str, ...]:
        if not self._config.hints:
            return ()
        said = dict.fromkeys(o.hint for o in step.errors if o.hint)
        is_silent = not step.observations and "\\boxed{" not in step.text
        return tuple(said)[:MAX_HINTS] or ((NO_ANSWER,) if is_silent else ())


def _names(step: Step) -> str:
    return ", ".join(dict.fromkeys(o.error for o in step.errors))
