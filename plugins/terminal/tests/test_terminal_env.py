"""An episode: what the policy says and sees, what is judged, what is left. On the real engine."""

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from claw_env_terminal.env import TerminalEnv
from claw_env_terminal.grade import Grade
from claw_env_terminal.judge import CommandsJudge, outcome
from claw_env_terminal.settings import TerminalConfig
from claw_env_terminal.tasks import of_path

from claw.records import FinishReason
from claw.sdk import Case, EnvTurn, Message, Task, UsageError, Verdict
from claw.sdk.env import assistant
from claw.sdk.formats.folder import FormatError
from claw.sdk.shell.hints import of as hints_of
from claw.sdk.shell.talk import Acted
from claw.sdk.shell.tools import chosen, schemas

Folder = Callable[..., Path]
Episode = Callable[..., TerminalEnv]

pytestmark = pytest.mark.real


def say(env: TerminalEnv, said: str | Message) -> list[Message] | None:
    reply = assistant(said) if isinstance(said, str) else said
    usage = {"prompt_tokens": 3, "completion_tokens": 2}
    return env.reply(EnvTurn(reply, FinishReason.STOP, len(env.acted), usage))


def call(*calls: tuple[str, Any]) -> Message:
    made = [{"id": f"c{i}", "type": "function", "function": {
        "name": name, "arguments": args if isinstance(args, str) else json.dumps(args)}}
        for i, (name, args) in enumerate(calls)]
    return {"role": "assistant", "content": None, "tool_calls": made}


def judged(env: TerminalEnv, index: int, *, final: bool = False) -> Verdict:
    case = Case("turn", (), {"role": "assistant", "content": ""}, (), env.task, final=final,
                metadata={"env": env, "index": index})
    return asyncio.run(CommandsJudge(env.config).judge(case))


def test_a_block_is_run_and_its_output_is_seen(folder: Folder, episode: Episode) -> None:
    env = episode(folder())
    assert say(env, "First:\n```bash\ncd /tmp\npwd\n```\nand ```bash\nexit 9\n```") == [
        {"role": "user", "content": "/tmp\n[exit code 0]"}]
    assert say(env, "```\npwd; false\n```") == [
        {"role": "user", "content": "/tmp\n[exit code 1]"}]
    assert say(env, "All is complete.\n**DONE**") is None
    assert [a.kinds for a in env.acted] == [("ok",), ("failed",), ("finish",)]


def test_an_open_block_is_run_as_far_as_it_goes(folder: Folder, episode: Episode) -> None:
    [seen] = say(episode(folder()), "```bash\necho cut") or []
    assert seen["content"] == "cut\n[exit code 0]"


def test_three_replies_in_a_row_that_are_no_action_end_the_episode(
    folder: Folder, episode: Episode
) -> None:
    env = episode(folder())
    assert "Nothing was run" in str(say(env, "Let me think."))
    say(env, "```bash\ntrue\n```")
    assert say(env, "Hm.") and say(env, "") and say(env, "I am not done yet.") is None


def test_long_output_is_cut_in_the_middle_and_a_hang_is_told(
    folder: Folder, episode: Episode
) -> None:
    env = episode(folder(), max_output=300, command_timeout_s=0.5)
    [seen] = say(env, "```bash\nseq 100000\n```") or []
    assert seen["content"].startswith("1\n2\n") and seen["content"].endswith("[exit code 0]")
    assert "left out" in seen["content"] and len(seen["content"]) < 400
    [seen] = say(env, "```bash\nsleep 60\n```") or []
    assert seen["content"] == "[killed: it did not end within 0.5 s]"


def test_the_tasks_own_time_ends_the_episode(folder: Folder, episode: Episode) -> None:
    path = folder()
    toml = (path / "task.toml").read_text().replace("[agent]", "[agent]\ntimeout_sec = 0.01")
    (path / "task.toml").write_text(toml)
    env = episode(path)
    time.sleep(0.05)
    assert say(env, "```bash\necho 42 > answer.txt\n```") is None
    assert env.grade().fraction == 0.0


def test_tools_do_what_they_say(folder: Folder, episode: Episode) -> None:
    env = episode(folder(), talk="tools")
    assert [t["function"]["name"] for t in env.tools] == chosen(())
    seen = say(env, call(
        ("shell_write_content_to_file", {"content": "one two\n", "file_path": "a.txt"}),
        ("file_edit", {"file_path": "a.txt", "old": "two", "new": "2"}),
        ("file_read", {"file_path": "a.txt"}),
        ("shell_exec", {"command": "cat a.txt; export Q=7"}),
        ("shell_start", {"id": "p", "command": "cat"}),
        ("shell_write_to_process", {"id": "p", "text": "typed $Q", "wait_for": "typed $Q"}),
        ("shell_view", {"id": "p"}),
    ))
    assert [m["tool_call_id"] for m in seen or []] == [f"c{i}" for i in range(7)]
    said = [m["content"] for m in seen or []]
    assert said[2] == "    1\tone 2" and said[3] == "one 2\n[exit code 0]"
    assert "typed $Q" in said[5] and "typed $Q" in said[6]
    assert say(env, call(("finish", {}), ("shell_exec", {"command": "touch late"}))) is None
    assert "late" not in env.box.run("ls").text


@pytest.mark.parametrize(("name", "arguments", "says"), [
    ("shell_exce", {"command": "ls"}, "no tool 'shell_exce'; there are: shell_exec"),
    ("shell_exec", "{broken", "cannot be used"), ("shell_exec", "[]", "cannot be used"),
    ("shell_exec", {}, "command: Field required"), ("shell_exec", {"command": 3}, "command"),
    ("shell_exec", {"command": "ls", "cwd": "/"}, "cwd: Extra inputs"),
    ("shell_exec", {"command": "ls", "timeout_s": 1e9}, "timeout_s"),
    ("shell_view", {"id": "nobody"}, "start one first"),
    ("file_read", {"file_path": "/nowhere"}, "No such file"),
    ("shell_exec", "[" * 100_000, "cannot be used"), ("shell_exec", None, "cannot be used"),
])
def test_a_wrong_call_is_words_for_the_policy(
    box_env: TerminalEnv, name: str, arguments: Any, says: str
) -> None:
    made = call((name, arguments))
    made["tool_calls"][0]["function"]["arguments"] = (
        arguments if isinstance(arguments, str | None) else json.dumps(arguments))
    box_env._errors = 0
    [seen] = say(box_env, made) or []
    assert says in seen["content"]


@pytest.fixture(scope="module")
def box_env(needs_docker: None, tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("task")
    (path / "tests").mkdir()
    (path / "task.toml").write_text('[environment]\ndocker_image = "claw/base:bookworm"\n'
                                    'network_mode = "no-network"\n[agent]\nuser = 1000\n')
    (path / "instruction.md").write_text("Do it.")
    (path / "tests/test.sh").write_text("")
    config = TerminalConfig(talk="tools")
    [task] = of_path(path, config) or []
    env = TerminalEnv(task, config)
    env.start()
    yield env
    env.close()


def test_a_call_that_could_not_be_read_is_no_end(folder: Folder, episode: Episode) -> None:
    env = episode(folder(), talk="tools")
    assert "no tool call" in str(say(env, '<tool_call>{"name": "shell_exec", "argum'))
    assert say(env, "I am done.") is None


def test_tools_are_chosen_by_name() -> None:
    assert chosen(("shell_exec",)) == ["shell_exec", "finish"]
    with pytest.raises(UsageError, match="no such tool"):
        chosen(("bash",))
    for tool in schemas(chosen(())):
        parameters = tool["function"]["parameters"]
        assert parameters["type"] == "object" and tool["function"]["description"]
        assert all("description" in p for p in parameters.get("properties", {}).values())


def test_exit_codes_judge_the_turns_and_tests_the_episode(
    folder: Folder, episode: Episode
) -> None:
    env = episode(folder(), hints=True)
    say(env, "```bash\nno_such_program\n```")
    say(env, "```bash\necho 42 > answer.txt\n```")
    say(env, "DONE")
    bad, good, last = judged(env, 0), judged(env, 1), judged(env, 2, final=True)
    assert (bad.vote, bad.reason) == (-1, "failed; exit code 127")
    assert "not on this machine" in bad.hints[0]
    assert (good.vote, good.hints) == (1, ())
    assert (last.vote, last.number) == (1, 1.0)
    assert CommandsJudge.is_checker


@pytest.mark.parametrize(("kind", "expected"), [("signed", 0.5), ("fraction", 0.75), ("solved", 0)])
def test_the_outcome_is_mapped_as_configured(kind: str, expected: float) -> None:
    assert outcome(Grade(0.75, False, "", {}, ""), kind) == expected
    assert outcome(Grade(1.0, True, "", {}, ""), kind) == 1.0


def test_a_hint_holds_no_word_of_the_machines() -> None:
    kinds = ("failed", "failed", "timeout", "unreadable", "ok", "oom", "failed")
    made = hints_of(Acted(kinds, (1, 127, None, None, 0, None, 99)))
    assert len(made) == len(set(made)) == 6
    assert all(len(h) > 10 for h in made)
    assert hints_of(Acted(("ok", "finish"), (0, None))) == ()


def test_a_trajectory_is_written_with_its_grade(
    folder: Folder, episode: Episode, tmp_path: Path
) -> None:
    env = episode(folder(), trajectories=str(tmp_path / "atif"))
    say(env, "```bash\necho 42 > answer.txt\n```")
    say(env, "DONE")
    env.grade()
    env.close()
    [path] = (tmp_path / "atif").iterdir()
    made = json.loads(path.read_text())
    assert [s["source"] for s in made["steps"]] == ["system", "user", "agent", "user", "agent"]
    assert made["final_metrics"]["total_completion_tokens"] == 4
    assert made["extra"]["is_solved"] is True


def test_closing_leaves_no_container_and_twice_is_fine(folder: Folder, episode: Episode) -> None:
    from claw.sdk.sandbox import engine

    env = episode(folder())
    id = env.box.id
    env.close()
    env.close()
    assert id not in {c["Id"] for c in engine.api().containers(all=True)}


def test_an_episode_that_cannot_start_leaves_no_container(
    folder: Folder, needs_docker: None
) -> None:
    from claw.sdk.sandbox import SandboxError, engine, owner

    path = folder(agent="nobody-knows")
    [task] = of_path(path, TerminalConfig()) or []
    env = TerminalEnv(task, TerminalConfig())
    mine = {"label": f"{owner.OWNER}={owner.me()}"}
    before = {c["Id"] for c in engine.api().containers(all=True, filters=mine)}
    with pytest.raises(SandboxError, match="no user 'nobody-knows'"):
        env.start()
    env.close()
    assert {c["Id"] for c in engine.api().containers(all=True, filters=mine)} == before


def test_a_health_check_is_waited_for_and_can_fail(folder: Folder, episode: Episode) -> None:
    from claw.sdk.sandbox import SandboxError

    check = "[environment.healthcheck]\ncommand = '{}'\ninterval_sec = 0.01\nretries = 3\n"
    tried = "n=$(cat /tmp/n 2>/dev/null || echo 0); echo $((n + 1)) > /tmp/n; [ $n -ge 2 ]"
    good = folder()
    toml = (good / "task.toml").read_text()
    (good / "task.toml").write_text(toml + check.format(tried))
    assert episode(good).box.run("cat /tmp/n").text == "3\n"
    bad = folder()
    (bad / "task.toml").write_text(toml + check.format("echo broken; false"))
    with pytest.raises(SandboxError, match="broken"):
        episode(bad)


def test_a_terminal_bench_folder_is_played_and_graded_by_its_summary(
    tmp_path: Path, episode: Episode
) -> None:
    path = tmp_path / "tb"
    (path / "tests").mkdir(parents=True)
    (path / "task.yaml").write_text("instruction: Write 42.\ndifficulty: easy\n")
    (path / "Dockerfile").write_text("FROM claw/base:bookworm\nWORKDIR /app\nRUN touch seen\n")
    (path / "run-tests.sh").write_text(
        'echo "=== short test summary info ==="\n'
        "if grep -qx 42 $TEST_DIR/../app/answer.txt; then echo PASSED t.py::test_it; "
        "else echo FAILED t.py::test_it - no; fi\n[ -f seen ] && echo PASSED t.py::test_place\n")
    env = episode(path, network="none")
    assert "[exit code 0]" in str(say(env, "```bash\npwd; echo 42 > answer.txt\n```"))
    assert (env.grade().fraction, env.grade().is_solved) == (1.0, True)
    idle = episode(path, network="none")
    assert (idle.grade().fraction, idle.grade().reason) == (
        0.5, "1 of 2 tests passed; failed: test_it")


def test_a_task_without_a_folder_is_refused() -> None:
    with pytest.raises(FormatError, match="names no task folder"):
        TerminalEnv(Task("t", ()), TerminalConfig())


def test_the_plugin_passes_the_conformance_kit(claw_conformance: Any, needs_docker: None) -> None:
    claw_conformance("terminal", {"level": 1}, max_tasks=1)
