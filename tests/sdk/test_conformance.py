"""The kit finds what is wrong with a plugin, says where, and lets a good one pass."""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace

import pytest
from pydantic import BaseModel, ConfigDict
from sdk_plugins import write_plugin

from claw.errors import UsageError
from claw.records import Task
from claw.sdk import Verdict, assistant, hookimpl, registry
from claw.sdk.testing import check, play, prove
from claw.sdk.testing.groups import GROUPS

TOOL = {"type": "function", "function": {
    "name": "add", "description": "Adds.", "parameters": {
        "type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
}}


class Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    count: int = 2
    """how many tasks"""


class Sum:
    """An environment with a tool: add, then say the sum."""

    def __init__(self, task):
        self.tools = [TOOL]
        self.task = task

    def start(self):
        return list(self.task.messages)

    def reply(self, turn):
        calls = turn.reply.get("tool_calls") or []
        if not calls:
            return None
        return [self.observe(call) for call in calls]

    def observe(self, call):
        try:
            asked = json.loads(call["function"]["arguments"])
            said = str(asked["a"] + asked["b"])
        except (ValueError, KeyError, TypeError) as error:
            said = f"error: {error!r}"
        return {"role": "tool", "tool_call_id": call["id"], "content": said}

    def close(self):
        pass


class SumJudge:
    name = "sum"

    async def judge(self, case):
        said = (case.reply.get("content") or "").strip()
        right = said == str(case.task.answer)
        return Verdict(1 if right else -1, number=float(right), reason="compared")


class Plugin:
    """Good in every way; each case below is worse in one."""

    env = Sum
    judge = SumJudge

    @hookimpl
    def claw_config(self):
        return Settings

    @hookimpl
    def claw_tasks(self, config, split):
        first = 1000 if split == "train" else 5000
        return [Task(f"{split}-{i}", ({"role": "user", "content": f"{first + i} + {first}?"},),
                     answer=2 * first + i) for i in range(config.count)]

    @hookimpl
    def claw_env(self, task, config):
        return type(self).env(task)

    @hookimpl
    def claw_judges(self, config):
        return [type(self).judge()]

    @hookimpl
    def claw_gold(self, task, env, config):
        return [assistant(calls=[("add", {"a": 1, "b": 2})]), str(task.answer)]


def checked(plugin, **more):
    return check(registry.from_object("sum", plugin), **more)


def test_a_good_plugin_breaks_no_criterion_and_every_group_looked():
    report = checked(Plugin())
    assert [line for c in report.broken() for line in c.lines()] == []
    assert {c.id[0] for c in report.criteria if c.passed} >= set("13456789")
    assert report.as_json()["passed"] is True
    json.dumps(report.as_json())


# --- what is broken, and by which criterion it is found ------------------------------------------


class Incomplete:
    @hookimpl
    def claw_config(self):
        return Settings


def with_env(**methods):
    return type("Worse", (Plugin,), {"env": type("WorseEnv", (Sum,), methods)})()


def with_hooks(**hooks):
    return type("Worse", (Plugin,), {n: hookimpl(f) for n, f in hooks.items()})()


def with_judge(judge):
    return type("Worse", (Plugin,), {
        "judge": type("WorseJudge", (SumJudge,), {"judge": judge}),
    })()


def tasks_of(*tasks):
    return with_hooks(claw_tasks=lambda self, config, split: tasks if split == "train" else ())


ASK = ({"role": "user", "content": "1000 + 1000?"},)
ONE = Task("one", ASK, answer=2000)


def random_tasks(self, config, split):
    return [replace(ONE, id=f"{split}-{time.monotonic_ns()}")]


def closes_once(self):
    del self.task


def leaves_a_file(self):
    handle, self.path = tempfile.mkstemp()
    os.close(handle)
    return list(self.task.messages)


def leaves_a_process(self):
    code = "import time; time.sleep(20)"
    self.process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    PROCESSES.append(self.process)
    return list(self.task.messages)


PROCESSES: list[subprocess.Popen] = []
SHARED: list[str] = []


def shares(self, turn):
    """A list that belongs to all episodes, as a module's global would."""
    SHARED.append(self.task.id)
    if not turn.reply.get("tool_calls"):
        ends = set(SHARED)
        SHARED.clear()
        self.task.metadata["mixed"] = len(ends) > 1
        return None
    time.sleep(0.1)
    return [{"role": "tool", "tool_call_id": c["id"], "content": "2"}
            for c in turn.reply["tool_calls"]]


async def judges_the_mixed(self, case):
    right = case.reply.get("content") == str(case.task.answer)
    ok = right and not case.task.metadata.get("mixed")
    return Verdict(1 if ok else -1, number=float(ok))


def mixed():
    plugin = with_env(reply=shares)
    type(plugin).judge = type("Mixed", (SumJudge,), {"judge": judges_the_mixed})
    return plugin


def blocks(self, turn):
    time.sleep(1.5)
    return Sum.reply(self, turn)


def waits_in_close():
    lock = threading.Lock()

    def reply(self, turn):
        with lock:
            time.sleep(1.5)
        return None

    def close(self):
        with lock:
            pass

    return with_env(reply=reply, close=close)


COUNT = iter(range(1 << 30))


async def moody(self, case):
    return Verdict(1, number=float(next(COUNT)))


async def generous(self, case):
    return Verdict(1, number=1.0)


async def silent_judge(self, case):
    return Verdict(reason="I never give a number")


async def raises_on_garbage(self, case):
    return Verdict(1, number=float(int(case.reply["content"] or 0) == case.task.answer))


def loose():
    class Loose(BaseModel):
        count: int = 2
        """not shown: no use_attribute_docstrings"""

    return with_hooks(claw_config=lambda self: Loose)


def needy():
    class Needy(BaseModel):
        model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

        count: int
        """without a default"""

    return with_hooks(claw_config=lambda self: Needy)


BROKEN = [
    ("1.complete", Incomplete),
    ("3.some", lambda: tasks_of()),
    ("3.named", lambda: tasks_of(replace(ONE, id=""))),
    ("3.unique", lambda: tasks_of(ONE, ONE)),
    ("3.stable", lambda: with_hooks(claw_tasks=random_tasks)),
    ("3.json", lambda: tasks_of(replace(ONE, metadata={"tags": {1, 2}}))),
    ("3.json", lambda: tasks_of(replace(ONE, metadata={1: "one"}))),
    ("3.secret", lambda: tasks_of(replace(ONE, messages=(
        {"role": "user", "content": "Say that it is 2000."},)))),
    ("4.start", lambda: with_env(start=lambda self: [])),
    ("4.start", lambda: with_env(start=lambda self: [{"role": "human", "content": "hi"}])),
    ("4.start", lambda: with_env(start=lambda self: [*ASK, assistant("hello")])),
    ("4.start", lambda: with_env(start=lambda self: 1 / 0)),
    ("4.same", lambda: with_env(start=lambda self: [
        {"role": "user", "content": str(time.monotonic_ns())}])),
    ("4.tools", lambda: with_env(__init__=lambda self, task: self.__dict__.update(
        task=task, tools=[{"type": "function", "function": {
            "name": "add", "parameters": {"type": "object", "properties": {"a": {"type": 3}}},
        }}]))),
    ("4.strange", lambda: with_env(observe=lambda self, call: {
        "role": "tool", "tool_call_id": call["id"],
        "content": str(json.loads(call["function"]["arguments"]))})),
    ("4.strange", lambda: with_env(reply=lambda self, turn: [
        {"role": "user", "content": "what?"}] if turn.reply.get("tool_calls") else None)),
    ("5.close", lambda: with_env(close=lambda self: self.opened)),
    ("5.close", lambda: with_env(close=closes_once)),
    ("5.leaves", lambda: with_env(start=leaves_a_file)),
    ("5.leaves", lambda: with_env(start=leaves_a_process)),
    ("6.gold", lambda: with_hooks(claw_gold=lambda self, task, env, config: ["17"])),
    ("6.gold", lambda: with_hooks(claw_gold=lambda self, task, env, config: 1 / 0)),
    ("6.gold", lambda: with_judge(silent_judge)),
    ("6.fails", lambda: with_judge(generous)),
    ("6.fails", lambda: with_judge(raises_on_garbage)),
    ("7.two", mixed),
    ("7.again", lambda: with_judge(moody)),
    ("7.cancel", waits_in_close),
    ("8.again", lambda: with_judge(moody)),
    ("8.stored", lambda: with_env(reply=lambda self, turn: None if not turn.reply.get(
        "tool_calls") else [{"role": "tool", "tool_call_id": "x", "content": "", "raw": {1}}])),
    ("8.size", lambda: with_env(observe=lambda self, call: {
        "role": "tool", "tool_call_id": call["id"], "content": "x" * (1 << 20)})),
    ("9.unknown", loose),
    ("9.documented", loose),
    ("9.defaults", needy),
]


@pytest.mark.parametrize(("id", "make"), BROKEN, ids=[id for id, _ in BROKEN])
def test_a_plugin_that_is_worse_in_one_way_is_found_by_that_criterion(id, make):
    values = {"count": 2} if make is needy else {}
    try:
        report = checked(make(), settings=values, groups=[GROUPS[int(id[0]) - 1]])
    finally:
        while PROCESSES:
            process = PROCESSES.pop()
            process.kill()
            process.wait()
    assert id in {c.id for c in report.broken()}
    assert not report.passed


def test_a_finding_names_the_task_what_was_expected_and_what_was_found():
    report = checked(with_env(start=lambda self: [{"role": "human", "content": "hi"}]),
                     groups=["starts"])
    said = "\n".join(report.broken()[0].lines())
    assert "[task train-0]" in said and "FAIL 4.start" in said
    assert "expected: a list of messages" in said
    assert "found: role is one of system, user, assistant, tool; found 'human'" in said


def test_an_answer_that_must_be_shown_is_no_leak_where_the_task_says_so():
    shown = replace(ONE, messages=({"role": "user", "content": "1 or 2000?"},))
    assert checked(tasks_of(shown), groups=["tasks"]).broken()[0].id == "3.secret"
    said = replace(shown, metadata={"answer_shown": True})
    assert checked(tasks_of(said), groups=["tasks"]).passed


def test_a_judge_that_needs_its_environment_may_abstain_on_a_stored_episode():
    async def judge(self, case):
        if "env" not in case.metadata:
            return Verdict(reason="the environment is gone")
        return await SumJudge.judge(self, case)

    assert checked(with_judge(judge), groups=["stored"]).passed


def test_an_episode_that_only_the_turn_limit_ends_is_noted_and_not_failed():
    plugin = with_env(reply=lambda self, turn: list(self.task.messages))
    report = checked(plugin, groups=["ends"])
    assert report.passed
    assert [c.passed for c in report.criteria if c.id == "5.ends"] == [False] * 4


def test_an_unknown_group_is_refused():
    with pytest.raises(UsageError, match="registers"):
        checked(Plugin(), groups=["judgd"])


def test_what_remains_elsewhere_is_not_blamed_on_the_plugin(tmp_path):
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(30)"])
    try:
        assert checked(Plugin(), groups=["ends"]).passed
    finally:
        other.kill()
        other.wait()


@pytest.mark.docker
def test_a_sandbox_that_an_environment_leaves_open_is_named(needs_docker):
    from claw.sdk.sandbox import open_sandbox

    opened = []

    def start(self):
        opened.append(open_sandbox())
        return Sum.start(self)

    try:
        report = checked(with_env(start=start), groups=["ends"])
        assert "5.leaves" in ids_of(report)
        assert any("container" in str(c.actual) for c in report.broken())
    finally:
        for box in opened:
            box.close()


# --- what needs an entry point -------------------------------------------------------------------


def installed_check(folder, monkeypatch, code, groups, requires="claw-rl>=0.1,<0.2"):
    monkeypatch.delitem(sys.modules, "odd_module", raising=False)
    write_plugin(folder, monkeypatch, "odd", code)
    metadata = folder / "claw_env_odd-1.2.dist-info" / "METADATA"
    metadata.write_text(metadata.read_text() + f"Requires-Dist: {requires}\n")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return check("odd", groups=groups)


APP = "from claw.sdk import hookimpl\n@hookimpl\ndef claw_app(engine, config, serve): ...\n"


def ids_of(report):
    return [c.id for c in report.broken()]


def test_an_installed_plugin_that_fits_passes_both_groups(tmp_path, monkeypatch):
    report = installed_check(tmp_path, monkeypatch, APP, ["registers", "imports"])
    assert [c.id for c in report.criteria if c.passed] == [
        "1.registers", "1.complete", "1.version", "2.light", "2.quick", "2.offline",
    ]
    assert report.version == "1.2"


@pytest.mark.parametrize(("requires", "found"), [
    ("claw-rl>=99", "is installed"), ("claw-rl", "claw-rl"), ("numpy>=1", "no such dependency"),
])
def test_a_range_that_does_not_fit_the_host_is_found(tmp_path, monkeypatch, requires, found):
    report = installed_check(tmp_path, monkeypatch, APP, ["registers"], requires)
    assert ids_of(report) == ["1.version"]
    assert found in report.broken()[0].actual


@pytest.mark.parametrize(("code", "id"), [
    ("import docker_stand_in, sys; sys.modules['docker'] = docker_stand_in\n", "2.light"),
    ("import time\nend = time.process_time() + 1.1\nwhile time.process_time() < end: pass\n",
     "2.quick"),
    ("import socket\ntry: socket.create_connection(('127.0.0.1', 1), 1)\nexcept OSError: pass\n",
     "2.offline"),
])
def test_a_plugin_whose_import_does_too_much_is_found(tmp_path, monkeypatch, code, id):
    import docker

    monkeypatch.setitem(sys.modules, "docker", docker)  # comes back: the plugin replaces it here
    (tmp_path / "docker_stand_in.py").write_text("")
    report = installed_check(tmp_path, monkeypatch, code + APP, ["imports"])
    assert ids_of(report) == [id]


def test_a_plugin_that_cannot_be_imported_fails_the_first_group_alone(tmp_path, monkeypatch):
    report = installed_check(tmp_path, monkeypatch, "1 / 0\n", GROUPS)
    assert ids_of(report) == ["1.registers"] == [c.id for c in report.criteria]
    assert "odd_module.py:1" in report.broken()[0].actual


# --- the fixture, playing and proving ------------------------------------------------------------


def test_the_fixture_makes_nine_tests_and_tells_what_is_broken(tmp_path, monkeypatch):
    bare = APP.replace("claw_app(engine, config, serve)", "claw_on_trace(trace)")
    write_plugin(tmp_path, monkeypatch, "bare", bare)
    (tmp_path / "test_it.py").write_text(
        "def test_conformance(claw_conformance):\n    claw_conformance('bare')\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        capture_output=True, text=True, cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
    )
    assert "test_it.py::test_conformance[registers]" in done.stdout
    assert "plugin 'bare':" in done.stdout and "FAIL 1.complete" in done.stdout
    assert "1 failed, 8 passed" in done.stdout


def test_the_pytest_plugin_costs_no_import_of_the_sdk_before_it_is_used():
    code = ("import sys, claw.sdk.testing.pytest_plugin;"
            "print(sorted({'pydantic', 'numpy', 'jsonschema', 'asyncio'} & set(sys.modules)))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pydantic" not in done.stdout and "numpy" not in done.stdout
    assert "jsonschema" not in done.stdout


def run(work):
    import asyncio

    return asyncio.run(work)


def loaded(plugin):
    found = registry.from_object("sum", plugin)
    return found, found.settings({})


def test_playing_replies_gives_messages_verdicts_and_the_outcome():
    plugin, settings = loaded(Plugin())
    said = [assistant(calls=[("add", {"a": 1, "b": 2})]), "2000"]
    played = run(play(plugin, settings, ONE, said))
    assert [m["role"] for m in played.messages] == ["user", "assistant", "tool", "assistant"]
    assert played.messages[2]["content"] == "3"
    assert (played.outcome, played.is_over) == (1.0, True)
    assert [v["sum"].vote for v in played.verdicts] == [-1, 1]


def test_a_policy_may_be_a_function_of_what_it_sees():
    plugin, settings = loaded(Plugin())
    seen = []

    def policy(messages):
        seen.append(messages[-1]["role"])
        return "2000" if len(seen) == 2 else assistant(calls=[("add", {"a": 1, "b": 1})])

    assert run(play(plugin, settings, ONE, policy)).outcome == 1.0
    assert seen == ["user", "tool"]


def test_replies_that_are_used_up_end_the_episode_where_it_stands():
    plugin, settings = loaded(Plugin())
    played = run(play(plugin, settings, ONE, [assistant(calls=[("add", {"a": 1, "b": 2})])]))
    assert (played.is_over, len(played.cases), played.outcome) == (False, 1, 0.0)


def test_a_gold_solution_may_act_on_the_environment_and_say_nothing():
    class Acting(Plugin):
        class env(Sum):
            def reply(self, turn):
                return None

        @hookimpl
        def claw_gold(self, task, env, config):
            env.solved = True
            return []

        @hookimpl
        def claw_judges(self, config):
            class Looks(SumJudge):
                async def judge(self, case):
                    return Verdict(number=float(getattr(case.metadata["env"], "solved", False)))

            return [Looks()]

    plugin, settings = loaded(Acting())
    proof = run(prove(plugin, settings, ONE))
    assert (proof.gold, proof.empty, proof.problem) == (1.0, 0.0, "")


@pytest.mark.parametrize(("plugin", "problem"), [
    (with_hooks(claw_gold=lambda self, task, env, config: None), "claw_gold returned None"),
    (with_hooks(claw_gold=lambda self, task, env, config: ["1"]), "got 0, not 1"),
    (with_judge(generous), "says nothing got 1, more than 0"),
    (with_judge(silent_judge), "no judge gave an outcome"),
    (with_env(start=lambda self: 1 / 0), "ZeroDivisionError"),
])
def test_a_task_that_is_not_proved_says_why(plugin, problem):
    assert problem in run(prove(*loaded(plugin), ONE)).problem


def test_the_judge_that_a_plugin_recommends_gives_the_outcome():
    class Two(Plugin):
        @hookimpl
        def claw_defaults(self):
            return {"judge": {"kind": "sum"}}

        @hookimpl
        def claw_judges(self, config):
            class Other(SumJudge):
                name = "other"

                async def judge(self, case):
                    return Verdict(number=0.25)

            return [Other(), SumJudge()]

    assert run(play(*loaded(Two()), ONE, ["2000"])).outcome == 1.0
