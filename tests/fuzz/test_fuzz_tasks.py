"""What stands in a task folder, a file of rows or a reward file is a task, or refused in words."""

import json
import math
from pathlib import Path
from random import Random
from typing import Any

import pytest
from claw_env_gui import tasks as desktop
from claw_env_gui.settings import GuiConfig
from claw_env_swe import tasks as repositories
from claw_env_swe.settings import SweConfig
from claw_env_terminal import tasks as shells
from claw_env_terminal.settings import TerminalConfig
from claw_env_toolcall.settings import ToolcallConfig
from claw_env_toolcall.tasks import rows as questions
from some_json import changed, cut, one_of, text, value, written
from tried import Tried

from claw.errors import UsageError
from claw.sdk import Task
from claw.sdk.formats import folder, reward, summary
from claw.sdk.formats.folder import FormatError, TaskFolder
from claw.sdk.formats.reward import RewardError

HARBOR = b"""\
version = "1.0"
schema_version = "1.1"
[task]
name = "org/x"
[metadata]
author_name = "a"
tags = ["x"]
[agent]
timeout_sec = 900.0
[verifier]
timeout_sec = 900.0
env = {A = "${B:-1}"}
[environment]
build_timeout_sec = 600.0
docker_image = "x"
cpus = 1
memory = "2G"
storage_mb = 10240
allow_internet = false
healthcheck = {command = "true", interval_sec = 5.0}
mcp_servers = [{name = "m", url = "http://x"}]
[solution]
env = {}
"""
TERMINAL = b"""\
instruction: do it
difficulty: easy
author_name: a
tags: [x, y]
parser_name: pytest
max_agent_timeout_sec: 900.0
max_test_timeout_sec: 180.0
run_tests_in_same_shell: false
"""
COMPOSE = b"""\
services:
  client:
    build: {dockerfile: Dockerfile}
    image: x
    environment: [A=1, "B=${T_BENCH_X}"]
    volumes: ["a:b"]
    working_dir: /app
"""
SOLUTION = b"- command: ls\n  min_timeout_sec: 1\n  block: true\n"
SWE = (
    {"instance_id": "django__django-1", "repo": "django/django", "base_commit": "abc",
     "problem_statement": "It breaks.", "patch": "diff --git a/x b/x\n", "version": "3.0",
     "test_patch": "diff --git a/tests/t.py b/tests/t.py\n", "hints_text": "",
     "FAIL_TO_PASS": "[\"tests/t.py::a\"]", "PASS_TO_PASS": ["tests/t.py::b"]},
    {"instance_id": "x", "image_name": "img", "problem_statement": "p", "patch": "d",
     "FAIL_TO_PASS": ["a"], "PASS_TO_PASS": []},
    {"instance_id": "x", "docker_image": "img", "problem_statement": "p", "patch": "d",
     "test_patch": "t", "FAIL_TO_PASS": ["a"], "PASS_TO_PASS": [],
     "install_config": {"log_parser": "parse_log_pytest", "test_cmd": ["pytest"]}},
    {"repo_name": "aiohttp", "docker_image": "img", "problem_statement": "[ISSUE]p[/ISSUE]",
     "expected_output_json": "{\"a\": \"PASSED\"}", "parsed_commit_content": {"file_diffs": [
         {"header": {"file": {"path": "a.py"}}, "old_file_content": "a",
          "new_file_content": "b"}]}},
    {"label": "x", "prompt": [{"role": "user", "content": "p"}], "metadata": {
        "image": "img", "eval_cmd": "pytest", "pre_commands": ["a"], "swepro": {"patch": "d"}}},
    {"instance_id": "x", "source": {"sdist": "a==1", "sha256": "0", "git": ""}, "base_commit": "",
     "problem_statement": "p", "patch": "d", "test_patch": "t", "FAIL_TO_PASS": ["a"],
     "test_files": ["t.py"], "test_env": {"A": "1"}, "test_output": "x"},
)
DESKTOP = (
    {"id": "x", "snapshot": "os", "instruction": "Do it.", "source": "", "related_apps": ["os"],
     "config": [{"type": "launch", "parameters": {"command": ["xterm"]}},
                {"type": "download", "parameters": {"files": [{"url": "a.txt", "path": "/a"}]}},
                {"type": "chrome_open_tabs", "parameters": {"urls_to_open": ["file:///a"]}}],
     "evaluator": {"func": ["exact_match", "compare_table"], "conj": "or",
                   "result": [{"type": "vm_command_line", "command": "cat a"},
                              {"type": "vm_file", "path": "/a", "dest": "a"}],
                   "expected": [{"type": "rule", "rules": {"expected": "1"}},
                                {"type": "cloud_file", "path": ["https://a.b/c"], "dest": "a"}],
                   "options": [{}, {"rules": [{"type": "sheet_data"}]}], "postconfig": []}},
    {"id": "y", "instruction": "Do it.", "evaluator": {
        "func": "check_json", "result": {"type": "vm_file", "path": "/a", "dest": "a"},
        "expected": {"type": "rule", "rules": {"expect": [{"key": ["a"], "method": "eq", "ref": 1}],
                                               "unexpect": []}}}},
    {"id": "z", "instruction": "Do it.", "evaluator": {"func": "infeasible"}, "proxy": True},
)
QUESTIONS = (
    {"question": "1+1?", "answer": "2", "id": "a", "checker": "math"},
    {"prompt": [{"role": "user", "content": "1+1?"}], "reward_model": {"ground_truth": "2"}},
)
CTRF = ({"results": {"tests": [{"name": "a", "status": "passed"}, {"name": "b", "status": "x"}]}},)


def check_task(task: Task) -> None:
    assert task.id and task.messages and all(isinstance(m["content"], str) for m in task.messages)
    json.dumps([task.metadata, task.answer], default=str)


def test_task_folders_are_read_or_refused(tried: Tried, tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "environment").mkdir()
    for name in ("instruction.md", "tests/test.sh", "run-tests.sh", "Dockerfile"):
        (tmp_path / name).write_text("x")
    files = {"task.toml": HARBOR, "task.yaml": TERMINAL, "docker-compose.yaml": COMPOSE,
             "solution.yaml": SOLUTION}

    def make(random: Random) -> dict[str, bytes]:
        made = dict(files)
        if random.random() < 0.5:
            del made["task.toml"]
        name = random.choice(list(made))
        lines = made[name].splitlines(keepends=True)
        at = random.randrange(len(lines))
        key = lines[at].partition(b"=" if name == "task.toml" else b":")[0]
        odd = random.choice((text(random), json.dumps(value(random)), "nan", "*a", "&a [*a]"))
        lines[at] = key + (b"= " if name == "task.toml" else b": ") + odd.encode(
            "utf-8", "surrogatepass") + b"\n"
        made[name] = random.choice((b"".join(lines), cut(random, made[name])))
        return made

    def check(made: dict[str, bytes]) -> None:
        for name in files:
            (tmp_path / name).unlink(missing_ok=True)
        for name, data in made.items():
            (tmp_path / name).write_bytes(data)
        try:
            read = folder.read(tmp_path)
        except FormatError as error:
            assert str(error)
            return
        assert isinstance(read, TaskFolder) and isinstance(read.instruction, str)
        for seconds in (read.agent_timeout_s, read.verifier_timeout_s, read.cpus):
            assert seconds is None or (math.isfinite(seconds) and seconds > 0), seconds
        for values in (read.env, read.verifier_env, read.solution_env):
            assert all(isinstance(v, str) for pair in values.items() for v in pair)
        try:
            for task in shells.of_path(tmp_path, TerminalConfig()) or ():
                check_task(task)
        except UsageError as error:
            assert str(error)

    tried(check, make, 60)


@pytest.mark.parametrize(("name", "examples"), [("swe", SWE), ("toolcall", QUESTIONS),
                                                 ("gui", DESKTOP)])
def test_rows_are_tasks_or_refused(
    tried: Tried, tmp_path: Path, name: str, examples: tuple[Any, ...]
) -> None:
    path = tmp_path / ("x.json" if name == "gui" else "x.jsonl")
    of = {
        "swe": lambda: repositories.of_path(path, SweConfig()),
        "toolcall": lambda: questions.tasks(ToolcallConfig(tasks="rows", rows=str(path)), "train"),
        "gui": lambda: desktop.of_path(path, GuiConfig()),
    }[name]

    def make(random: Random) -> bytes:
        return one_of(random, *[lambda r: written(changed(r, examples))] * 6,
                      lambda r: cut(r, written(r.choice(examples))), lambda r: written(value(r)))

    def check(data: bytes) -> None:
        path.write_bytes(data)
        try:
            for task in of() or ():
                check_task(task)
                if name == "swe":
                    repositories.instance_of(task)
                if name == "gui":
                    desktop.desktop_task(task)
        except UsageError as error:
            assert str(error)

    tried(check, make, 100)


def test_reward_files_are_finite_numbers_or_refused(tried: Tried) -> None:
    def make(random: Random) -> dict[str, bytes]:
        def content(name: str) -> bytes:
            if name.endswith("txt"):
                return one_of(random, text, lambda r: str(value(r))).encode(
                    "utf-8", "surrogatepass")
            return one_of(random, lambda r: cut(r, b'{"reward": 0.5, "b": 1}'),
                          lambda r: written(changed(r, ({"reward": 0.5, "b": 1},))),
                          lambda r: written(value(r)))
        names = ("reward.json", "rewards.json", "reward.txt", "other")
        return {name: content(name) for name in names if random.random() < 0.5}

    def check(files: dict[str, bytes]) -> None:
        try:
            numbers = reward.read(files)
        except RewardError as error:
            assert 0 < len(str(error)) < 10_000
            return
        assert numbers and all(math.isfinite(n) for n in numbers.values())
        assert math.isfinite(reward.one(numbers))

    tried(check, make, 120)


def test_test_reports_are_counts_or_nothing(tried: Tried) -> None:
    words = ("=== ", "1 passed", "2 failed", "in 0.1s", "PASSED a", "FAILED b - x", "ERROR", "\n",
             "short test summary info", "9" * 30 + " passed", "-1 failed", "\u0661 passed")

    def make(random: Random) -> tuple[bytes, str]:
        lines = "".join(random.choice((random.choice(words), text(random)))
                        for _ in range(random.randrange(9)))
        return written(changed(random, CTRF)), lines

    def check(made: tuple[bytes, str]) -> None:
        for counts in (reward.from_ctrf(made[0]), summary.read(made[1])):
            assert counts is None or 0 <= counts.passed <= counts.total
            assert counts is None or 0 <= counts.fraction <= 1

    tried(check, make, 100)
