"""Environments elsewhere: over the wire they are what they are here, and a host may die."""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from runner_doubles import FakeActor
from test_episodes import address, play, signals_of  # noqa: F401 (address is a fixture)
from test_limits import Breaks, Checker, no_disk, sandbox_died
from test_wire_engine import engine_at

from claw import config
from claw.engine import wire
from claw.engine.runner import remote
from claw.engine.runner.episodes import Episodes
from claw.engine.runner.remote import RemoteConfig, RemoteEnv
from claw.engine.runner.served import Served
from claw.errors import Boundary, BoundaryError, ClawError, UsageError
from claw.records import End, FinishReason, Task
from claw.sdk import EnvTurn, Verdict, registry
from claw.sdk.doubles import DoublePlugin, EchoEnv


class Host:
    """A served plugin on a thread of its own, as in another process."""

    def __init__(self, plugin, address, **more):  # noqa: F811
        self.plugin = plugin
        self.served = Served(registry.from_object("double", plugin), address, **more)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        self._task = self._loop.create_task(self.served.run())
        with contextlib.suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._task)

    def stop(self):
        self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(10)


@pytest.fixture
def host(tmp_path):
    """Return `host(plugin, **more) -> address`; everything ends with the test."""
    made = []

    def start(plugin, address=None, **more):  # noqa: F811
        address = address or f"ipc://{tmp_path}/host"
        made.append(Host(plugin, address, **more))
        return address

    start.made = made
    yield start
    for client in remote._clients.values():
        client.close()
    remote._clients.clear()
    for one in made:
        one.stop()


def play_remote(actor_at, host_at, overrides=(), script=None, settings=""):
    """Play the host's train split through the plugin `remote`; return (results, actor)."""
    run = config.load(overrides=(
        "rollout.n=2", "rollout.retries=0", f"plugin.remote.address='{host_at}'",
        "plugin.remote.dead_after_s=3", *overrides,
    ))
    results = []

    async def work():
        async with FakeActor(actor_at, script) as actor, engine_at(actor_at) as engine:
            episodes = await asyncio.to_thread(
                Episodes, engine, registry.from_object("remote", remote), run)
            await episodes.once("train", lambda attempt, episode, result: results.append(result))
            return actor

    return results, asyncio.run(asyncio.wait_for(work(), 40))


def seen(actor):
    """What an actor heard, without ids."""
    asked = [[m["record"]["messages"], m["record"]["tools"]] for m in actor.of("turn.ask")]
    said = [(m["messages"], [(s.judge, s.vote, s.number, s.hints) for s in signals_of(m)])
            for m in actor.of("trace.next")]
    ends = [(m["end"], m["outcome"], m["judge"], m["failure"]) for m in actor.of("trace.end")]
    return sorted(map(repr, asked)), sorted(map(repr, said)), ends


class Shows(EchoEnv):
    """Remembers what it was told of the policy before its start."""

    takes_pictures = False

    def start(self):
        self.told = self.takes_pictures
        return super().start()


@pytest.mark.parametrize("sees", [True, False])
def test_an_environment_hears_whether_the_policy_sees_pictures(
    address, host, monkeypatch, sees  # noqa: F811
):
    monkeypatch.setattr(FakeActor, "sees", sees)
    here, there = (DoublePlugin(make_env=lambda task: Shows(1)) for _ in range(2))
    play(address, here)
    play_remote(address, host(there))
    for plugin in (here, there):
        assert plugin.envs and {env.told for env in plugin.envs} == {sees}


def test_over_the_wire_an_actor_hears_what_it_hears_from_here(address, host):  # noqa: F811
    def plugin():
        return DoublePlugin(judges=[Checker()])

    words = ("judge.kind=tests", "rollout.n=3")
    _, here, _ = play(address, plugin(), overrides=(*words, "plugin.double.tasks=2"))
    there_plugin = plugin()
    results, there = play_remote(address, host(there_plugin), words)
    assert seen(there) == seen(here)
    assert [r.end for r in results] == [End.DONE] * 6
    assert [env.closed for env in there_plugin.envs] == [1] * 6
    deadline = time.monotonic() + 5
    while len(there_plugin.traces) < 6 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(there_plugin.traces) == 6


def test_the_hosted_plugins_settings_are_checked_there(address, host):  # noqa: F811
    at = host(DoublePlugin())
    results, _ = play_remote(address, at, ("plugin.remote.settings.tasks=3", "rollout.n=1"))
    assert sorted(r.task_id for r in results) == ["train-0", "train-1", "train-2"]
    with pytest.raises(ClawError, match="taskss: no such setting"):
        play_remote(address, at, ("plugin.remote.settings.taskss=3",))


@pytest.mark.parametrize(("where", "fail", "border", "again"), [
    ("reply", no_disk, Boundary.ENV, False), ("reply", sandbox_died, Boundary.SANDBOX, True),
    ("start", no_disk, Boundary.ENV, True),
])
def test_a_failure_there_is_classified_as_it_would_be_here(
    address, host, where, fail, border, again  # noqa: F811
):
    at = host(DoublePlugin(make_env=lambda task: Breaks(where, fail)))
    results, actor = play_remote(
        address, at, ("rollout.n=1", "rollout.retries=1", "plugin.remote.settings.tasks=1"))
    assert [(r.end, r.where) for r in results] == [(End.FAILED, border)]
    said = "no disk" if fail is no_disk else "the container is gone"
    assert said in results[0].failure
    assert [m["again"] for m in actor.of("trace.end")] == [True, False][1 - again:]


def task():
    return Task("t", ({"role": "user", "content": "say"},), answer={"n": [1, None]})


def test_an_environment_there_answers_turn_by_turn_and_closes_twice(host):
    class Tools(EchoEnv):
        def start(self):
            self.tools = [{"type": "function", "function": {"name": "f"}}]
            return super().start()

    plugin = DoublePlugin(make_env=lambda t: Tools(2, f"answer {t.answer}"))
    at = RemoteConfig(address=host(plugin))
    env = RemoteEnv(remote.client_of(at), at, task())
    assert env.tools == []
    assert env.start() == [{"role": "user", "content": "answer {'n': [1, None]}"}]
    assert env.tools[0]["function"]["name"] == "f"
    odd = {"role": "assistant", "content": "a \ud83c \x00 b"}
    turn = EnvTurn(odd, FinishReason.STOP, 0)
    assert env.reply(turn) == [{"role": "user", "content": "You said: a \ud83c \x00 b"}]
    assert env.reply(turn) is None
    env.close()
    env.close()
    assert plugin.envs[0].closed == 1
    with pytest.raises(BoundaryError, match="no such environment here"):
        env.reply(turn)


def test_an_environment_there_says_what_the_policy_sees_of_a_conversation(host):
    class Short(EchoEnv):
        def shown(self, messages):
            return messages[-1:]

    made = iter([Short(2, "say"), EchoEnv(2, "say")])
    at = RemoteConfig(address=host(DoublePlugin(make_env=lambda t: next(made))))
    said = [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]
    short, plain = (RemoteEnv(remote.client_of(at), at, task()) for _ in range(2))
    assert short.shown(said) == said[1:] and plain.shown(said) == said


def test_a_runner_that_vanishes_leaves_no_environment_behind(host):
    plugin = DoublePlugin()
    at = RemoteConfig(address=host(plugin, dead_after_s=0.5))
    client = remote.client_of(at)
    RemoteEnv(client, at, task()).start()
    assert plugin.envs[0].closed == 0
    client.close()
    remote._clients.clear()
    deadline = time.monotonic() + 5
    while not plugin.envs[0].closed and time.monotonic() < deadline:
        time.sleep(0.02)
    assert plugin.envs[0].closed == 1


def test_a_host_that_is_not_there_is_told_with_what_to_do(address, tmp_path):  # noqa: F811
    with pytest.raises(ClawError, match="claw env host --plugin NAME --listen"):
        play_remote(address, f"ipc://{tmp_path}/nobody", ("plugin.remote.dead_after_s=0.3",))


def test_a_plugin_whose_other_hooks_cannot_travel_is_refused_by_name(address, host):  # noqa: F811
    class WithLoss(DoublePlugin):
        @registry.hooks.hookimpl
        def claw_loss(self, register):
            """Nothing."""

    with pytest.raises(UsageError, match="claw_loss"):
        play_remote(address, host(WithLoss()))


def test_tasks_without_end_are_read_page_by_page(host):
    read = []

    class Endless(DoublePlugin):
        @registry.hooks.hookimpl
        def claw_tasks(self, config, split):
            for n in range(10**9):
                read.append(n)
                yield Task(f"t{n}", ())

    at = RemoteConfig(address=host(Endless()))
    tasks = remote.claw_tasks(at, "train")
    assert [next(tasks).id for _ in range(20)] == [f"t{n}" for n in range(20)]
    assert len(read) <= 3 * remote.PAGE


# --- the same conformance kit --------------------------------------------------------------------


class Sum:
    """Says whether a sum is right; with a tool, as an agent's environment has one."""

    def __init__(self, task):
        self.task = task
        self.tools = [{"type": "function", "function": {
            "name": "add", "description": "Adds.", "parameters": {
                "type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}}}]

    def start(self):
        return list(self.task.messages)

    def reply(self, turn):
        calls = turn.reply.get("tool_calls") or []
        return [{"role": "tool", "tool_call_id": call["id"], "content": "error: no such tool"}
                for call in calls] or None

    def close(self):
        """Nothing is held."""


class SumJudge:
    name, is_checker = "sum", True

    async def judge(self, case):
        right = (case.reply.get("content") or "").strip() == str(case.task.answer)
        return Verdict(1 if right else -1, number=float(right), reason="compared")


class Sums:
    def __init__(self, env=Sum, asks=False):
        self.env, self.asks = env, asks

    @registry.hooks.hookimpl
    def claw_tasks(self, config, split):
        first = 1000 if split == "train" else 5000
        return [Task(f"{split}-{i}", ({"role": "user", "content": f"{first + i} + {first}?"},),
                     answer=2 * first + i) for i in range(2)]

    @registry.hooks.hookimpl
    def claw_env(self, task, config):
        return self.env(task)

    @registry.hooks.hookimpl
    def claw_judges(self, config):
        return [SumJudge()]

    @registry.hooks.hookimpl
    def claw_gold(self, task, env, config):
        return (lambda messages: str(task.answer)) if self.asks else [str(task.answer)]


@pytest.mark.parametrize("asks", [False, True])
def test_the_conformance_kit_passes_over_the_wire(host, asks):
    from claw.sdk.testing import check

    at = host(Sums(asks=asks))
    report = check(registry.from_object("remote", remote), {"address": at})
    assert [line for c in report.broken() for line in c.lines()] == []
    assert {c.id[0] for c in report.criteria if c.passed} >= set("13456789")


def test_the_kit_finds_over_the_wire_what_is_wrong_there(host):
    from claw.sdk.testing import check

    class Raises(Sum):
        def reply(self, turn):
            if turn.reply.get("tool_calls"):
                raise ValueError("which tool?")
            return super().reply(turn)

    report = check(registry.from_object("remote", remote), {"address": host(Sums(Raises))})
    assert "which tool?" in str([line for c in report.broken() for line in c.lines()])


# --- tcp -----------------------------------------------------------------------------------------


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_over_tcp_both_ends_need_the_keys(address, host, tmp_path):  # noqa: F811
    for name in ("keys", "others"):
        wire.make_keys(tmp_path / name)
    at = f"tcp://127.0.0.1:{free_port()}"
    with pytest.raises(UsageError, match="needs CURVE keys"):
        remote.Client(RemoteConfig(address=at))
    host(DoublePlugin(), at, keys=wire.read_keys(tmp_path / "keys"))
    words = ("rollout.n=1", f"plugin.remote.keys='{tmp_path}/others'",
             "plugin.remote.dead_after_s=0.5")
    with pytest.raises(ClawError, match="does not answer"):
        play_remote(address, at, words)
    results, _ = play_remote(
        address, at, ("rollout.n=1", f"plugin.remote.keys='{tmp_path}/keys'"))
    assert [r.end for r in results] == [End.DONE] * 2


# --- the command, as a process -------------------------------------------------------------------

PLUGIN = """
from claw.sdk.doubles import DoublePlugin, DoubleConfig, EchoEnv
import os, time

class Env(EchoEnv):
    def reply(self, turn):
        time.sleep(float(os.environ.get("ENV_REPLY_S", "0")))
        return super().reply(turn)

_plugin = DoublePlugin(make_env=lambda task: Env(2, str(task.messages[0]["content"])))
claw_config, claw_tasks = _plugin.claw_config, _plugin.claw_tasks
claw_env, claw_judges = _plugin.claw_env, _plugin.claw_judges
"""


@pytest.fixture
def hosted(tmp_path, monkeypatch):
    """Return `hosted(*words, **environment)`: a `claw env host` process of an installed plugin."""
    folder = tmp_path / "site"
    info = folder / "claw_env_hosted-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / "claw_env_hosted.py").write_text(PLUGIN)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: claw-env-hosted\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[claw]\nhosted = claw_env_hosted\n")
    monkeypatch.syspath_prepend(str(folder))
    made = []

    def start(*words, **environment):
        log = (tmp_path / f"host-{len(made)}.log").open("wb")
        made.append(subprocess.Popen(
            [sys.executable, "-m", "claw", "env", "host", "--plugin", "hosted", *words],
            stdout=log, stderr=log,
            env=os.environ | {"PYTHONPATH": str(folder)} | environment,
        ))
        return made[-1]

    yield start
    for process in made:
        if process.poll() is None:
            process.kill()
        process.wait(10)
    for client in remote._clients.values():
        client.close()
    remote._clients.clear()


def test_a_host_that_is_killed_costs_its_attempts_and_a_new_one_serves(
    address, hosted, tmp_path  # noqa: F811
):
    at = f"ipc://{tmp_path}/h"
    first = hosted("--listen", at, ENV_REPLY_S="30")
    again = []

    def script(actor, message):
        from runner_doubles import text_answer

        if not again:  # the first answer of the first attempt: its host dies while it thinks
            again.append(threading.Timer(0.3, _replace))
            again[0].start()
        return text_answer(message, "hello")

    def _replace():
        first.send_signal(signal.SIGKILL)
        first.wait()
        hosted("--listen", at)

    results, actor = play_remote(
        address, at, ("rollout.n=1", "rollout.retries=1", "plugin.remote.settings.tasks=1",
                      "plugin.remote.dead_after_s=10"), script)
    assert [(r.end, r.outcome) for r in results] == [(End.DONE, 1.0)]
    ends = [(m["end"], m["again"]) for m in actor.of("trace.end")]
    assert ends == [("failed", True), ("done", False)]


def test_a_host_ends_politely_and_mistakes_are_told(hosted, tmp_path):
    process = hosted("--listen", f"ipc://{tmp_path}/h")
    deadline = time.monotonic() + 20
    while not (tmp_path / "h").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 0
    for words, said in (
        ((), "one way in"), (("--listen", "ipc://a", "--connect", "ipc://b"), "one way in"),
        (("--listen", "tcp://127.0.0.1:1"), "needs CURVE keys"),
        (("--listen", "ipc://x", "rollout.n=2"), "no effect at --listen"),
    ):
        assert hosted(*words).wait(20) == 2
        logs = sorted(tmp_path.glob("host-*.log"), key=lambda p: p.stat().st_mtime)
        assert said in logs[-1].read_text()


# --- in a container ------------------------------------------------------------------------------

IMAGE = "claw/base:bookworm"


def docker(*words, check=True):
    return subprocess.run(["docker", *words], capture_output=True, text=True, check=check,
                          timeout=60)


@pytest.fixture
def contained(tmp_path, hosted):
    """Return `contained(folder)`: a container without network that hosts the plugin there."""
    ids = []
    why = "no docker command" if shutil.which("docker") is None else docker(
        "image", "inspect", IMAGE, check=False).stderr
    if why and os.environ.get("CLAW_REAL") == "require":
        pytest.fail(f"Docker with {IMAGE} is required here: {why}")
    if why:
        pytest.skip(f"Docker with {IMAGE} is missing: {why}")

    def start(folder):
        here = {sys.base_prefix, sys.prefix, *sys.path, str(tmp_path / "site")}
        path = ":".join([*sys.path, str(tmp_path / "site")])
        mounts = [f"-v={p}:{p}:ro" for p in sorted(here) if Path(p).is_dir()]
        made = docker(
            "run", "-d", "--network=none", "--cap-drop=ALL", "--security-opt=no-new-privileges",
            "--memory=512m", "--pids-limit=64", "--log-driver=none", "--label=claw.test=env-host",
            f"--user={os.getuid()}", "-e", f"PYTHONPATH={path}",
            *mounts, f"-v={folder}:/host", IMAGE, sys.executable, "-m", "claw", "env", "host",
            "--plugin", "hosted", "--listen", "ipc:///host/s")
        ids.append(made.stdout.strip())
        return ids[-1]

    yield start
    for id in ids:
        docker("rm", "-f", id, check=False)


@pytest.mark.real
def test_a_plugin_in_a_container_without_network_is_played_from_here(
    address, contained  # noqa: F811
):
    with tempfile.TemporaryDirectory(prefix="claw-t-") as folder:
        id = contained(folder)
        results, actor = play_remote(
            address, f"ipc://{folder}/s", ("judge.kind=echo", "plugin.remote.dead_after_s=20"))
        assert [(r.end, r.outcome) for r in results] == [(End.DONE, 1.0)] * 4
        assert len(actor.of("turn.ask")) == 8
        state = docker("inspect", "-f", "{{.State.Status}} {{.HostConfig.NetworkMode}}", id)
        assert state.stdout.split() == ["running", "none"]
        assert docker("stop", "-t", "10", id).returncode == 0
        assert docker("inspect", "-f", "{{.State.ExitCode}}", id).stdout.strip() == "0"
