"""The tasks of this package: the script solves each, doing nothing and a plausible slip do not."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from claw_env_gui import oracle
from claw_env_gui.env import GuiEnv
from claw_env_gui.osworld import evaluate
from claw_env_gui.settings import GuiConfig
from claw_env_gui.tasks import SHIPPED, of_split

from claw.records import FinishReason
from claw.sdk import EnvTurn, Task

NAMES = sorted(path.parent.name for path in SHIPPED.glob("*/task.json"))
SPACES = ("computer_13", "pyautogui", "computer_use")
AT_ONCE = 4


def test_there_are_enough_and_each_has_its_scripts() -> None:
    assert len(NAMES) >= 10
    for name in NAMES:
        right, wrong = (oracle.read(SHIPPED / name / f"{kind}.json")
                        for kind in ("oracle", "wrong"))
        assert right != wrong and right[-1]["action_type"] in ("DONE", "FAIL")


def played(task: Task, script: str, space: str) -> tuple[float, evaluate.Score]:
    """Return the score of doing nothing, and that of the script, on one desktop."""
    env = GuiEnv(task, GuiConfig(observation="screenshot", actions=space, settle_s=1.0))  # type: ignore[arg-type]
    try:
        seen: Any = env.start()
        nothing = evaluate.score(env.machine, env.desktop_task, "")
        policy = oracle.play(env, f"{script}.json")
        assert policy is not None
        while seen is not None and (said := policy(seen)) is not None:
            seen = env.reply(EnvTurn(said, FinishReason.STOP, len(env.acted)))
        assert [a.kind for a in env.acted] == ["ok"] * (len(env.acted) - 1) + ["end"]
        return nothing.value, env.score()
    finally:
        env.close()


@pytest.fixture(scope="module")
def scores(needs_desktop: None) -> dict[tuple[str, str], Any]:
    """Every script of every task, four desktops at once; the spaces take turns."""
    tasks = list(of_split(GuiConfig(eval_share=0), "eval"))
    jobs = [(task, script, SPACES[(at + turn) % 3] if script == "oracle" else SPACES[0])
            for at, task in enumerate(tasks) for turn, script in enumerate(("oracle", "wrong"))]

    def play(job: tuple[Task, str, str]) -> Any:
        try:
            return played(*job)
        except Exception as error:  # shown by the test of this task
            return error

    with ThreadPoolExecutor(AT_ONCE) as threads:
        made = list(threads.map(play, jobs))
    return {(job[0].id, job[1]): each for job, each in zip(jobs, made, strict=True)}


@pytest.mark.slow
@pytest.mark.docker
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", NAMES)
def test_the_script_solves_it_and_the_slip_does_not(
    name: str, scores: dict[tuple[str, str], Any]
) -> None:
    for script, value in (("oracle", 1.0), ("wrong", 0.0)):
        found = scores[name, script]
        if isinstance(found, Exception):
            raise found
        nothing, scored = found
        assert nothing == 0.0
        assert scored.value == value, f"{script}: {scored.reason}"
