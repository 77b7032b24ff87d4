"""An agent cannot grade itself. On the real engine."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from claw_env_terminal.oracle import play

Folder = Callable[..., Path]
Episode = Callable[..., Any]
Run = Callable[..., str]

pytestmark = pytest.mark.real
SOLVED = """if [ "$(cat answer.txt 2>/dev/null)" = 42 ]; then r=1; else r=0; fi
echo $r > /logs/verifier/reward.txt
"""


def test_solved_is_one_and_nothing_done_is_zero(folder: Folder, episode: Episode, run: Run) -> None:
    env, idle = episode(folder()), episode(folder())
    run(env, "echo 42 > answer.txt")
    assert (env.grade().fraction, env.grade().is_solved) == (1.0, True)
    assert (idle.grade().fraction, idle.grade().is_solved) == (0.0, False)


def test_the_tests_are_nowhere_while_the_agent_acts(
    folder: Folder, episode: Episode, run: Run
) -> None:
    env = episode(folder(**{"solution/solve.sh": "echo 42 > answer.txt"}))
    assert "[exit code 1]" in run(env, "ls -d /tests /solution 2>/dev/null | grep .")
    assert "secret" not in run(env, "find / -name secret.txt 2>/dev/null")
    play(env)
    assert "[exit code 1]" in run(env, "ls -d /solution 2>/dev/null | grep .")


def test_a_reward_that_the_agent_left_does_not_count(
    folder: Folder, episode: Episode, run: Run
) -> None:
    guarded = episode(folder())
    assert "ermission denied" in run(guarded, "echo 1 > /logs/verifier/reward.txt")
    root = episode(folder("exit 0\n", agent="root"))
    run(root, "echo 1 > /logs/verifier/reward.txt; echo '{\"reward\": 1}' > "
              "/logs/verifier/reward.json; mkdir /tests; echo 'echo 1' > /tests/test.sh")
    graded = root.grade()
    assert (graded.fraction, graded.is_solved) == (0.0, False)
    assert "no reward file" in graded.reason


def test_the_exit_code_decides_nothing(folder: Folder, episode: Episode) -> None:
    good = episode(folder("echo 1 > /logs/verifier/reward.txt; exit 3\n"))
    bad = episode(folder("exit 0\n"))
    assert (good.grade().is_solved, bad.grade().is_solved) == (True, False)


@pytest.mark.parametrize("agent", ["1000:1000", "root"])
def test_a_daemon_that_rewrites_the_reward_changes_nothing(
    folder: Folder, episode: Episode, run: Run, agent: str
) -> None:
    slow = "echo 0 > /logs/verifier/reward.txt; sleep 1\n"
    env = episode(folder(slow, agent=agent))
    run(env, "setsid bash -c 'while :; do echo 1 > /logs/verifier/reward.txt; "
             "echo 1 > /logs/verifier/reward.json; sleep 0.05; done' >/dev/null 2>&1 &")
    assert env.grade().fraction == 0.0


def test_a_daemon_that_waits_for_the_tests_cannot_read_them(
    folder: Folder, episode: Episode, run: Run
) -> None:
    env = episode(folder("sleep 1\n" + SOLVED))
    run(env, "setsid bash -c 'while :; do cat /tests/secret.txt > answer.txt; sleep 0.05; done' "
             ">/dev/null 2>&1 &")
    assert env.grade().fraction == 0.0


def test_what_the_tests_started_is_ended(folder: Folder, episode: Episode, run: Run) -> None:
    """The tests run the agent's program as themselves, which a careful task would not."""
    env = episode(folder("bash agent.sh\necho 0 > /logs/verifier/reward.txt\n"))
    run(env, "echo 'setsid sleep 77 > /dev/null 2>&1 &' > agent.sh")
    assert env.grade().reason == "reward 0"
    assert env.box.run(["pgrep", "-f", "sleep 77"]).stdout == b""


def test_the_agents_path_and_start_files_are_not_the_graders(
    folder: Folder, episode: Episode, run: Run
) -> None:
    test = 'python3 -c "import json"\n' + SOLVED
    env = episode(folder(test))
    run(env, "mkdir -p bin ~/.local/lib/python3.11/site-packages; cheat='echo 1 > "
             "/logs/verifier/reward.txt; exit 0'; for n in bash cat python3 pytest echo; do "
             "echo \"#!/bin/sh\n$cheat\" > bin/$n; chmod +x bin/$n; done; "
             "export PATH=$PWD/bin:$PATH BASH_ENV=$PWD/bin/bash; echo $cheat > ~/.bashrc; "
             "echo \"import os; os.system('$cheat')\" "
             "> ~/.local/lib/python3.11/site-packages/usercustomize.py")
    assert env.grade().fraction == 0.0


def test_a_root_agent_that_replaces_the_shell_is_caught_by_a_clean_grading(
    folder: Folder, episode: Episode, run: Run
) -> None:
    fake = ("#!/usr/bin/python3\nimport os, sys\nif '/tests/test.sh' in sys.argv:\n"
            "    open('/logs/verifier/reward.txt', 'w').write('1')\nelse:\n"
            "    os.execv('/usr/bin/bash.real', sys.argv)\n")
    cheat = (f"cat > fake <<'END'\n{fake}END\nchmod +x fake; cp /usr/bin/bash /usr/bin/bash.real; "
             "cp fake /usr/bin/fake && mv /usr/bin/fake /usr/bin/bash")
    outcomes = {}
    for grading in ("shared", "clean"):
        env = episode(folder(agent="root", workdir="/srv"), grading=grading)
        run(env, cheat)
        outcomes[grading] = env.grade().fraction
    assert outcomes == {"shared": 1.0, "clean": 0.0}, "a root agent is trusted where it shares"


def test_a_clean_grading_gets_the_working_directory_whole(
    folder: Folder, episode: Episode, run: Run
) -> None:
    test = 'cd deep && [ "$(readlink link)" = ../answer.txt ] && cd .. &&\n' + SOLVED
    env = episode(folder(test), grading="clean")
    run(env, "echo 42 > answer.txt; mkdir deep; ln -s ../answer.txt deep/link; chmod 700 deep")
    assert env.grade().fraction == 1.0
    huge = episode(folder(), grading="clean")
    run(huge, "echo 42 > answer.txt; head -c 40000000 /dev/urandom > big")
    assert "cannot be copied" in huge.grade().reason


def test_a_link_or_a_pipe_in_the_place_of_an_answer_stops_nothing(
    folder: Folder, episode: Episode, run: Run
) -> None:
    env = episode(folder("timeout 1 cat answer.txt\n" + "echo 0 > /logs/verifier/reward.txt\n"))
    run(env, "mkfifo answer.txt; ln -s /logs/verifier other")
    assert env.grade().reason == "reward 0"


def test_hidden_files_of_the_agent_can_be_read_by_the_grader(
    folder: Folder, episode: Episode, run: Run
) -> None:
    env = episode(folder())
    run(env, "echo 42 > answer.txt; chmod 000 answer.txt")
    assert env.grade().fraction == 1.0


def test_tests_that_do_not_end_give_nothing(folder: Folder, episode: Episode) -> None:
    env = episode(folder("sleep 60\n"), timeout_factor=0.05)
    graded = env.grade()
    assert graded.fraction == 0.0 and "longer than" in graded.reason


def test_the_report_gives_the_fraction_and_the_reward_what_is_solved(
    folder: Folder, episode: Episode
) -> None:
    report = ('echo \'{"results": {"tests": [{"name": "a", "status": "passed"}, '
              '{"name": "b", "status": "failed"}]}}\' > /logs/verifier/ctrf.json\n'
              "echo 0 > /logs/verifier/reward.txt\n")
    by_tests = episode(folder(report)).grade()
    assert (by_tests.fraction, by_tests.is_solved) == (0.5, False)
    assert by_tests.reason == "1 of 2 tests passed; failed: b"
    assert episode(folder(report), score="reward").grade().fraction == 0.0


def test_a_collect_hook_runs_as_the_agent_before_the_tests(
    folder: Folder, episode: Episode, run: Run
) -> None:
    more = ('[[verifier.collect]]\ncommand = "id -u > /logs/artifacts/who; bash agent.sh > '
            '/logs/artifacts/out"\n[verifier.env]\nWANT = "${WANT:-7}"')
    test = ('[ "$(cat /logs/artifacts/who)" = 1000 ] && [ "$(cat /logs/artifacts/out)" = $WANT ] '
            "&& echo 1 > /logs/verifier/reward.txt\n")
    env = episode(folder(test, more=more))
    run(env, "echo 'echo 7' > agent.sh")
    assert env.grade().fraction == 1.0


def test_a_verifier_under_the_agents_name_is_not_taken_for_somebody_else(
    folder: Folder, episode: Episode, run: Run
) -> None:
    slow = "echo 0 > /logs/verifier/reward.txt; sleep 0.5\n"
    env = episode(folder(slow, agent="1000:1000", verifier="agent"))
    run(env, "setsid bash -c 'while :; do echo 1 > /logs/verifier/reward.txt; sleep 0.05; done' "
             ">/dev/null 2>&1 &")
    assert env.grade().fraction == 0.0

