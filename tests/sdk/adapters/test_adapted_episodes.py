"""Other people's environments through the real runner process and the real actor process.

The policy is scripted; the packages, the server, the sockets and the journal are real.
"""

import asyncio
import json
import sys
import tempfile
from pathlib import Path

import pytest
from actor_doubles import (
    WITH_TOOLS,
    FakeTrainer,
    FakeWorker,
    actor_process,
    addresses,
    make_model,
    run_config,
)

from claw import config as run_settings
from claw.engine import wire
from claw.engine.actor.chat import Chat
from claw.engine.actor.journal import Journal
from claw.records import Trace

DEADLINE_S = 120
TASKS_PLAYED = 2


@pytest.fixture(scope="session")
def tool_model(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("tool_model"), WITH_TOOLS, context=4096)


def play(model, folder, python, plugin, settings, policy):
    """Run actor and runner until two traces have ended; return (traces, turns) of the journal."""
    config = run_config(
        plugin_name=plugin, plugin={plugin: settings}, judge__kind="none", credit__kind="outcome",
        rollout__n=1, rollout__parallel=2, rollout__max_turns=6, rollout__max_tokens=256,
        worker__context=4096, wire__dead_after_s=60.0,
    )

    async def work():
        with tempfile.TemporaryDirectory(prefix="claw-t-") as short:
            a = addresses(Path(short))
            async with actor_process(config, model, folder / "run", Path(short)):
                worker = FakeWorker(a["workers"], Chat(model), policy, name="worker-0")
                trainer = FakeTrainer(a["trainer"])
                await worker.hello()
                await trainer.hello()
                try:
                    await _run(python, config, a["runners"], folder)
                finally:
                    worker.close()
                    trainer.close()

    asyncio.run(asyncio.wait_for(work(), DEADLINE_S))
    return _read(folder / "run")


async def _run(python, config, runners, folder):
    spec = folder / "runner.json"
    spec.write_text(json.dumps({
        "config": run_settings.resolved(config), "actor": runners, "run_dir": str(folder),
        "ready": str(folder / "ready.json"),
    }))
    with (folder / "log").open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            python, "-m", "claw.engine.runner", "--spec", str(spec), stdout=out, stderr=out)
    try:
        while process.returncode is None and len(_read(folder / "run")[0]) < TASKS_PLAYED:
            await asyncio.sleep(0.2)
        assert process.returncode is None, (folder / "log").read_text()[-3000:]
    finally:
        if process.returncode is None:
            process.terminate()
            await asyncio.wait_for(process.wait(), 30)


def _read(run):
    """The ended traces, oldest first, and the turns of each."""
    if not (run / "journal.sqlite").exists():
        return [], {}
    journal = Journal(run, read_only=True)
    try:
        rows = journal.read("SELECT body FROM traces WHERE ended!='' ORDER BY rowid")
        traces = [wire.unpack(Trace, json.loads(body), {}) for (body,) in rows]
        turns = {
            trace.id: [journal.turn(id) for id, _ in journal.turn_ids(trace.id)]
            for trace in traces
        }
        return traces, turns
    finally:
        journal.close()


def says(*answers):
    """A policy: the answer of the first pair whose words stand in the prompt's last message."""
    def policy(prompt):
        last = prompt.rsplit("<|im_start|>", 2)[-2]
        return next(answer for words, answer in answers if words in last)

    return policy


def call(name, **arguments):
    return f'<tool_call>\n{json.dumps({"name": name, "arguments": arguments})}\n</tool_call>'


def test_a_v1_taskset_is_played_and_its_rewards_reach_the_journal(
    tool_model, tmp_path, new_verifiers
):
    policy = says(("Buy pears", call("till_buy", thing="pear", count=1)), ("6 left", "Enough."))
    traces, turns = play(tool_model, tmp_path, new_verifiers, "verifiers",
                         {"package": "clawtest-shop"}, policy)
    first = next(t for t in traces if t.task_id == "clawtest-shop-train-0")
    assert (first.end, first.outcome, first.failure) == ("done", 1.0, "")
    asked, ended = turns[first.id]
    assert [t["function"]["name"] for t in asked.tools][:1] == ["till_buy"]
    assert asked.reply["tool_calls"][0]["function"]["name"] == "till_buy"
    assert asked.next_state[0]["content"] == "6 left"
    assert ended.reply["content"] == "Enough."
    poor = next(t for t in traces if t.task_id == "clawtest-shop-train-1")
    assert (poor.end, poor.outcome, len(turns[poor.id])) == ("done", 1.0, 1)


@pytest.mark.slow
def test_a_v0_environment_is_played_and_its_rubric_reaches_the_journal(
    tool_model, tmp_path, old_verifiers
):
    policy = says(("2+3", "3"), ("4+4", "8"), ("higher", "5"))
    traces, turns = play(tool_model, tmp_path, old_verifiers, "verifiers",
                         {"package": "clawtest-sums", "args": {"kind": "guess"}}, policy)
    said = {t.task_id: (t.end, t.outcome, len(turns[t.id])) for t in traces[:TASKS_PLAYED]}
    assert said == {"clawtest-sums-train-0": ("done", 2.0, 2),
                    "clawtest-sums-train-1": ("done", 1.0, 1)}


@pytest.mark.slow
def test_an_openenv_server_is_played_and_its_rewards_reach_the_journal(
    tool_model, tmp_path, served
):
    policy = says(("ready", "hello"), ("hello", "bye"))
    traces, turns = play(tool_model, tmp_path, sys.executable, "openenv",
                         {"url": f"ws://{served}/echo", "tasks": 2}, policy)
    for trace in traces[:TASKS_PLAYED]:
        assert (trace.end, trace.outcome, trace.failure) == ("done", 4.0, "")
        one, two = turns[trace.id]
        assert one.next_state[0]["content"] == "hello" and two.reply["content"] == "bye"


@pytest.mark.slow
def test_a_package_that_cannot_be_played_ends_the_runner_with_the_reason(
    tool_model, tmp_path, new_verifiers
):
    with pytest.raises(AssertionError) as caught:
        play(tool_model, tmp_path, new_verifiers, "verifiers", {"package": "clawtest-world"},
             says())
    assert "a harness of its own (WorldHarness)" in str(caught.value)
    assert "Traceback" not in str(caught.value)
