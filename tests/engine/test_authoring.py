"""`claw plugin ...` and `claw env ...` as a person types them."""

import json
import sys

import pytest
from typer.testing import CliRunner

from claw.cli import app
from claw.errors import UsageError

WORDS = '''
from claw.errors import ClawError
from claw.sdk import Task, Verdict, hookimpl

class Env:
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
    def __init__(self, task): self.task = task
    def start(self): return list(self.task.messages)
    def reply(self, turn): return None
    def close(self): pass

class Judge:
    name = "words"
    async def judge(self, case):
        right = case.reply["content"] == case.task.answer
        return Verdict(number=float(right))

def task(id, answer="yes"):
    return Task(id, ({"role": "user", "content": f"Ask {id}?"},), answer=answer)

@hookimpl
def claw_tasks(config, split): return [task(f"{split}-{i}") for i in range(3)]

@hookimpl
def claw_env(task, config): return Env(task)

@hookimpl
def claw_judges(config): return [Judge()]

@hookimpl
def claw_gold(task, env, config): return ["yes"]

@hookimpl
def claw_read_tasks(path, config):
    if path.suffix != ".words": return None
    names = path.read_text().split()
    if "video" in names: raise ClawError("a part is not supported", found="video", allowed="text")
    return [task(name, "no" if name == "wrong" else "yes") for name in names]
'''


@pytest.fixture
def words(tmp_path, monkeypatch):
    """An installed plugin named `words`."""
    from sdk_plugins import write_plugin

    monkeypatch.delitem(sys.modules, "words_module", raising=False)
    write_plugin(tmp_path, monkeypatch, "words", WORDS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


def claw(*typed, code=0):
    done = CliRunner().invoke(app, list(typed))
    if isinstance(done.exception, Exception) and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == code, done.output
    return done.output


def test_tasks_are_listed_with_split_and_first_words(words):
    lines = claw("env", "list", "words").splitlines()
    assert lines[0].split(maxsplit=2) == ["train", "train-0", "Ask train-0?"]
    assert lines[3].split(maxsplit=2) == ["eval", "eval-0", "Ask eval-0?"]
    assert lines[-1] == "6 tasks"
    assert claw("env", "list", "words", "--split", "eval", "--limit", "2").endswith("2 tasks\n")


def test_a_task_is_shown_as_the_policy_meets_it_and_its_answer_only_when_asked(words):
    said = claw("env", "inspect", "words", "eval-1")
    assert '"name": "look"' in said and "[user]\nAsk eval-1?" in said and "yes" not in said
    assert 'answer   "yes"' in claw("env", "inspect", "words", "eval-1", "--answer")
    with pytest.raises(UsageError, match="did you mean 'eval-1'"):
        claw("env", "inspect", "words", "evl-1")


def test_proofs_are_told_a_line_a_task_and_as_json(words):
    said = claw("env", "check", "words", "rollout.parallel=2")
    assert "ok   train  train-0  gold 1  empty 0" in said
    assert said.endswith("6 tasks, 0 not proved\n")
    found = json.loads(claw("env", "check", "words", "--split", "eval", "--json"))
    assert found["passed"] and {t["task"] for t in found["tasks"]} == {"eval-0", "eval-1", "eval-2"}


def test_a_file_of_tasks_is_proved_by_the_plugin_that_reads_it(words):
    (words / "some.words").write_text("one wrong")
    said = claw("env", "check", str(words / "some.words"), code=1)
    assert "ok   some.words one  gold 1  empty 0" in said
    assert "FAIL some.words wrong  gold 0  empty 0\n       the gold solution got 0, not 1" in said
    assert claw("env", "list", str(words / "some.words")).endswith("2 tasks\n")


def test_a_format_that_no_plugin_reads_is_refused_by_name(words):
    (words / "some.video").write_text("x")
    with pytest.raises(UsageError, match=r"no plugin reads(.|\n)*asked: .*words"):
        claw("env", "check", str(words / "some.video"))
    with pytest.raises(UsageError, match="no such plugin, file or folder"):
        claw("env", "check", str(words / "gone.words"))


def test_an_unsupported_part_is_refused_before_anything_starts(words):
    (words / "some.words").write_text("one video")
    with pytest.raises(Exception, match="a part is not supported"):
        claw("env", "check", str(words / "some.words"))


def test_a_plugin_is_checked_in_words_and_as_json(words):
    said = claw("plugin", "check", "words", code=1)  # it declares no claw-rl
    assert "FAIL 1.version" in said and "words 1.2: failed" in said
    found = json.loads(claw("plugin", "check", "words", "--json", code=1))
    assert [c["id"] for c in found["criteria"] if c["passed"] is False] == ["1.version"]
    assert {"id", "description", "passed", "required", "expected", "actual"} <= set(
        found["criteria"][0])


def test_an_unknown_plugin_is_refused_with_the_nearest_name(words):
    with pytest.raises(UsageError, match="did you mean 'words'"):
        claw("plugin", "check", "wrds")


def test_a_new_plugin_ends_with_what_to_type_next(tmp_path):
    said = claw("plugin", "new", "My Env", "--into", str(tmp_path)).splitlines()
    assert said[-3:] == [f"pip install -e {tmp_path}/claw-env-my-env",
                         "claw plugin check my-env", "claw train --plugin my-env"]
    with pytest.raises(UsageError, match="something already"):
        claw("plugin", "new", "my_env", "--into", str(tmp_path))
