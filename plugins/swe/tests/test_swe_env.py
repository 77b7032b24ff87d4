"""An episode: what the policy says and sees, how it ends, what is judged. On the real engine."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from claw_env_swe import oracle
from claw_env_swe.env import SweEnv
from claw_env_swe.judge import SweJudge
from claw_env_swe.work import MARKER
from small_repo import GOLD, HALF, NEW_TEST

from claw.sdk import Case, Verdict
from claw.sdk.env import assistant

Episode = Callable[..., SweEnv]
Say = Callable[..., Any]
pytestmark = pytest.mark.real
SUBMIT = f"```bash\necho {MARKER}\n```"
MEND = "```bash\nsed -i 's/a - b/a + b/' calc.py\n```"


def judged(env: SweEnv, index: int, *, final: bool = False) -> Verdict:
    case = Case("turn", (), {"role": "assistant", "content": ""}, (), env.task, final=final,
                metadata={"env": env, "index": index})
    return asyncio.run(SweJudge(env.config).judge(case))


def test_an_episode_mends_submits_and_is_solved(
    row: dict[str, Any], episode: Episode, say: Say, tmp_path: Path
) -> None:
    env = episode(row, trajectories=str(tmp_path / "atif"))
    [seen] = say(env, "```bash\npwd; head -2 calc.py\n```")
    assert seen["content"].startswith("/testbed\ndef add(a, b):")
    assert say(env, MEND) == [{"role": "user", "content": "[exit code 0]"}]
    assert say(env, SUBMIT) is None
    last = judged(env, 2, final=True)
    assert (last.vote, last.number) == (1, 1.0) and last.reason.startswith("full: 2 of 2")
    env.close()
    [path] = (tmp_path / "atif").glob("calc__add-*.json")
    made = json.loads(path.read_text())
    assert made["extra"]["status"] == "full" and made["extra"]["is_submitted"]
    assert [s["source"] for s in made["steps"]] == ["system", "user", "agent", "user", "agent",
                                                    "user", "agent"]
    assert made["final_metrics"]["total_prompt_tokens"] == 3000


def test_a_commit_of_the_agents_own_counts_and_caches_do_not(
    row: dict[str, Any], episode: Episode, say: Say
) -> None:
    env = episode(row)
    say(env, "```bash\npython3 -c 'import calc'; sed -i 's/a - b/a + b/' calc.py\n"
             "git commit -qam mended; touch extra.txt; mkdir __pycache__; touch __pycache__/a.pyc\n"
             "```")
    say(env, SUBMIT)
    patch = env.work().patch.decode()
    assert "+    return a + b" in patch and "extra.txt" in patch and "pycache" not in patch
    assert env.grade().status == "full"


def test_a_submitted_patch_is_taken_instead_of_the_repository(
    row: dict[str, Any], episode: Episode, say: Say
) -> None:
    env = episode(row)
    env.box.write("/tmp/p.patch", HALF.encode())
    say(env, MEND)
    assert say(env, f"```bash\necho {MARKER}; cat /tmp/p.patch\n```") is None
    assert env.work().patch.decode() == HALF
    assert env.grade().status == "partial"


def test_only_the_first_line_of_a_command_that_went_well_submits(
    row: dict[str, Any], episode: Episode, say: Say
) -> None:
    env = episode(row)
    assert say(env, f"```bash\necho no; echo {MARKER}\n```") is not None
    assert say(env, f"```bash\necho {MARKER}; false\n```") is not None
    assert say(env, f"```bash\necho {MARKER}!\n```") is not None


def test_an_agent_cannot_be_graded_by_what_it_left_in_its_container(
    row: dict[str, Any], episode: Episode, say: Say
) -> None:
    env = episode(row)
    say(env, "```bash\nat=$(python3 -m site --user-site); mkdir -p $at; "
             "echo 'import os; os._exit(0)' > $at/usercustomize.py; python3 -c 'print(1)'\n```")
    say(env, SUBMIT)
    assert env.work().patch == b"" and env.grade().status == "no"


def test_a_broken_git_is_told_and_worth_nothing(
    row: dict[str, Any], episode: Episode, say: Say
) -> None:
    env = episode(row)
    say(env, "```bash\nrm -rf .git\n```")
    say(env, SUBMIT)
    assert env.grade().reason.startswith("the changes cannot be read")


def test_limits_end_the_episode_and_what_was_done_is_graded_or_not(
    row: dict[str, Any], episode: Episode, say: Say
) -> None:
    env = episode(row, max_steps=1)
    assert say(env, MEND) is None and env.grade().status == "full"
    env = episode(row, max_steps=1, unsubmitted="nothing")
    assert say(env, MEND) is None and env.grade().reason == "nothing was submitted"
    env = episode(row, max_cost=0.005, price_in=2.0, price_out=10.0)  # 0.003 a turn
    assert say(env, "```bash\ntrue\n```") is not None and say(env, MEND) is None


def test_replies_without_an_action_end_the_episode(
    row: dict[str, Any], episode: Episode, say: Say
) -> None:
    env = episode(row)
    assert MARKER in say(env, "I will think.")[0]["content"]
    assert say(env, "") is not None and say(env, "Hm.") is None
    assert judged(env, 0).vote == -1
    assert judged(env, 2, final=True).number == 0.0


def test_tools_read_edit_and_finish(row: dict[str, Any], episode: Episode, say: Say) -> None:
    env = episode(row, talk="tools")
    assert [t["function"]["name"] for t in env.tools] == [
        "shell_exec", "shell_write_content_to_file", "file_read", "file_edit", "finish"]
    seen = say(env, assistant(calls=[
        ("file_read", {"file_path": "calc.py", "count": 2}),
        ("file_edit", {"file_path": "calc.py", "old": "a - b", "new": "a + b"})]))
    assert "return a - b" in seen[0]["content"] and "wrote" in seen[1]["content"]
    assert say(env, assistant(calls=[("finish", {})])) is None
    assert env.grade().status == "full"


@pytest.mark.parametrize("talk", ["fence", "tools"])
def test_the_oracle_acts_through_the_agents_own_turns(
    row: dict[str, Any], episode: Episode, say: Say, talk: str
) -> None:
    env = episode(row, talk=talk, gold_runs=2)
    before = env.box.run("git status --porcelain").text
    turns = oracle.play(env) or []
    assert env.box.run("git status --porcelain").text == before == "", "it only says what to do"
    for turn in turns:
        say(env, turn)
    assert len(env.acted) == len(turns) == 2 and env.runs == 2
    assert env.work().patch.decode().count("\n+    return a + b") == GOLD.count("\n+    return")
    assert env.grade().status == "full"


def test_the_policy_sees_the_problem_and_never_the_tests(
    row: dict[str, Any], episode: Episode
) -> None:
    env = episode(row | {"hints_text": "look at add"}, hints_text=True)
    said = json.dumps([*env.task.messages, env.task.metadata])
    assert "add() subtracts" in said and "look at add" in said
    assert "assertEqual" not in said and NEW_TEST not in said
    assert env.box.run("grep -rl assertEqual /testbed").text == ""
