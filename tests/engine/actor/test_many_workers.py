"""Several worker processes over TCP with CURVE keys: one dies, one is slow, one joins, one leaves.

The workers are real processes (the scripted backend, and transformers with a tiny model); the
policy behind the socket is the actor's own.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from contextlib import asynccontextmanager

import numpy as np
import pytest
import torch
import zmq
import zmq.asyncio
from safetensors.numpy import save_file
from transformers import AutoModelForCausalLM

from claw.engine import versions, wire
from claw.engine.actor.policy import Policy, new_call
from claw.records import FinishReason, Sampling, Version

pytestmark = pytest.mark.timeout(120)
PROMPT = [7, 8, 9, 10, 11]


class Stage:
    """A policy behind a TCP socket, and the worker processes that join it."""

    def __init__(self, folder, dead_after_s):
        self.folder, self.dead_after_s = folder, dead_after_s
        wire.make_keys(folder / "keys")
        keys = wire.read_keys(folder / "keys")
        with zmq.Context() as context, context.socket(zmq.ROUTER) as probe:
            port = probe.bind_to_random_port("tcp://127.0.0.1")
        self.address = f"tcp://127.0.0.1:{port}"
        self.context = zmq.asyncio.Context()
        self.socket = wire.open_socket(self.context, zmq.ROUTER, self.address, bind=True, keys=keys)
        self.policy = Policy(self.send, (), dead_after_s=dead_after_s, max_waiting=64)
        self.processes, self.num = {}, 0
        self.tasks = [asyncio.create_task(t) for t in (self.listen(), self.tend())]

    async def send(self, peer, message):
        await self.socket.send_multipart([peer, *wire.encode(message)])

    async def listen(self):
        while True:
            peer, *frames = await self.socket.recv_multipart()
            message = wire.decode(frames)
            await self.policy.heard(peer, message)

    async def tend(self):
        while True:
            await asyncio.sleep(0.05)
            await self.policy.tend()

    async def join(self, name, model=None, *, kind="scripted", slots=4, keys="keys", **script):
        """Start a worker process and wait until it has said hello."""
        folder = model or self.folder / name
        folder.mkdir(exist_ok=True)
        if model is None:
            (folder / "script.json").write_text(json.dumps(script))
        config = {"worker": {"kind": kind, "slots": slots, "queue": 0, "context": 256,
                             "threads": 1}, "rollout": {"max_tokens": 64},
                  "wire": {"keys": str(self.folder / keys), "heartbeat_s": 0.2,
                           "dead_after_s": 5.0}}
        spec = self.folder / f"{name}.json"
        spec.write_text(json.dumps({"config": config, "model_dir": str(folder), "name": name,
                                    "actor": self.address, "versions": ""}))
        self.processes[name] = subprocess.Popen(
            [sys.executable, "-m", "claw.engine.worker", "--spec", str(spec)],
            stderr=(self.folder / "log").open("ab"), env=os.environ | {"OMP_NUM_THREADS": "1"})
        if keys == "keys":
            await self.until(lambda: name.encode() in self.policy.workers)

    async def until(self, what, seconds=40):
        async with asyncio.timeout(seconds):
            while not what():
                await asyncio.sleep(0.01)

    def call(self, tokens=20, session="", **sampling):
        self.num += 1
        sampling = {"max_tokens": tokens, "ignore_eos": True, "temperature": 0.0} | sampling
        call = new_call(f"turn_{self.num}", np.array(PROMPT, np.int32), Sampling(**sampling),
                        session=session, owner="default", adapter="default", deadline_s=60)
        call.seen = []
        return call

    async def all(self, call):
        """Run a call to its end; note which workers had it, and which versions it got."""
        async for _ in self.policy.generate(call):
            if call.worker and call.worker not in call.seen:
                call.seen.append(call.worker)
        call.ids = np.concatenate([c.ids for c in call.chunks]).tolist()
        call.versions = set(np.concatenate([c.versions for c in call.chunks]).tolist())
        return call

    async def load(self, name, number):
        """Have one worker serve a version, and wait until its heartbeat says so."""
        folder = self.folder / f"v{number}"
        folder.mkdir()
        save_file({"w": np.zeros(1, np.float32)}, folder / "model.safetensors")
        checksum = versions.write_manifest(folder, owner="default", adapter="default", parent=None,
                                           number=number, kind="full", step=number)
        version = Version("default", "default", number, None, checksum, path=str(folder))
        await self.send(name.encode(), wire.record_message("version.load", version))
        await self.until(lambda: ["default", "default", number] in
                         self.policy.workers[name.encode()].versions)

    def close(self):
        for task in self.tasks:
            task.cancel()
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()
        self.context.destroy(0)


@pytest.fixture
def play(tmp_path):
    def run(function, dead_after_s=2.0):
        @asynccontextmanager
        async def stage():
            made = Stage(tmp_path, dead_after_s)
            try:
                yield made
            finally:
                made.close()

        async def main():
            async with asyncio.timeout(100), stage() as made:
                await function(made)

        asyncio.run(main())
    return run


def greedy(folder, tokens):
    """What plain transformers says, one forward per token."""
    model, ids = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32), list(PROMPT)
    with torch.no_grad():
        for _ in range(tokens):
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    return ids[len(PROMPT):]


@pytest.mark.slow
def test_what_a_worker_that_was_killed_had_in_hand_goes_on_elsewhere_token_for_token(
    play, tiny_llama_dir
):
    async def run(stage):
        for name in ("a", "b"):
            await stage.join(name, tiny_llama_dir, kind="transformers", slots=8)
        calls = [stage.call(tokens=200) for _ in range(6)]
        streams = [asyncio.create_task(stage.all(c)) for c in calls]
        await stage.until(lambda: all(c.num_tokens for c in calls))
        assert all(len(w.calls) == 3 for w in stage.policy.workers.values()), "shared evenly"
        stage.processes["a"].send_signal(signal.SIGKILL)
        done = await asyncio.gather(*streams)
        wanted = greedy(tiny_llama_dir, 200)
        assert all(c.ids == wanted and c.finish is FinishReason.LENGTH for c in done)
        assert Counter(c.attempt for c in done) == {0: 3, 1: 3}
        assert set(stage.policy.workers) == {b"b"} and stage.policy.counts["dead"] == 1
    play(run)


def test_a_slow_worker_gets_fewer_requests_and_holds_up_nobody_elses(play):
    async def run(stage):
        await stage.join("slow", slots=2, pace_s=0.15)
        await stage.join("fast", slots=2, pace_s=0.002)
        done = await asyncio.gather(*(stage.all(stage.call(tokens=10)) for _ in range(24)))
        had = Counter(c.seen[0] for c in done)
        assert sum(had.values()) == 24 and had[b"fast"] > 2 * had[b"slow"] > 0
        assert all(len(c.ids) == 10 for c in done)
    play(run)


def test_a_worker_that_stood_still_until_it_was_taken_for_dead_is_asked_again(play):
    async def run(stage):
        await stage.join("a", slots=2, pace_s=0.002)
        stage.processes["a"].send_signal(signal.SIGSTOP)
        await stage.until(lambda: b"a" not in stage.policy.workers)
        stage.processes["a"].send_signal(signal.SIGCONT)
        await stage.until(lambda: b"a" in stage.policy.workers)
        assert (await stage.all(stage.call(tokens=10))).seen == [b"a"]
    play(run, dead_after_s=1.0)


def test_a_worker_with_an_older_version_is_asked_only_when_the_others_are_full(play):
    async def run(stage):
        await stage.join("old", slots=2, pace_s=0.02)
        await stage.join("new", slots=2, pace_s=0.02)
        await stage.load("new", 3)
        calls = [stage.call(tokens=4) for _ in range(4)]
        streams = [asyncio.create_task(stage.all(c)) for c in calls]
        await stage.until(lambda: all(c.worker for c in calls))
        assert [c.worker for c in calls] == [b"new", b"new", b"old", b"old"]
        done = await asyncio.gather(*streams)
        assert [c.versions for c in done] == [{3}, {3}, {0}, {0}]
    play(run)


def test_a_session_stays_with_the_worker_that_holds_its_prefix_until_that_is_much_busier(play):
    async def run(stage):
        for name in ("a", "b"):
            await stage.join(name, slots=4, pace_s=0.02)
        first = await stage.all(stage.call(session="s"))
        for _ in range(3):
            assert (await stage.all(stage.call(session="s", tokens=3))).seen == first.seen
        running = [stage.call(tokens=60, session="s") for _ in range(6)]
        streams = [asyncio.create_task(stage.all(c)) for c in running]
        await stage.until(lambda: all(c.worker for c in running))
        assert [c.worker == first.seen[0] for c in running] == [True, True, True, False, False,
                                                               False]
        await asyncio.gather(*streams)
    play(run)


def test_workers_join_and_leave_while_requests_run_and_none_is_lost(play):
    async def run(stage):
        await stage.join("first", pace_s=0.01)
        done, stopping = [], asyncio.Event()

        async def client():
            while not stopping.is_set():
                done.append(await stage.all(stage.call(tokens=20)))

        clients = [asyncio.create_task(client()) for _ in range(6)]
        await stage.until(lambda: done)
        await stage.join("second", pace_s=0.01)
        await stage.until(lambda: any(c.seen[0] == b"second" for c in done))
        stage.processes["first"].send_signal(signal.SIGTERM)
        await stage.until(lambda: stage.processes["first"].poll() is not None)
        await stage.until(lambda: b"first" not in stage.policy.workers, seconds=1)
        assert stage.processes["first"].returncode == 0
        await stage.join("third", pace_s=0.01)
        await stage.until(lambda: any(c.seen[0] == b"third" for c in done))
        stopping.set()
        await asyncio.gather(*clients)
        assert all(len(c.ids) == 20 and c.finish is FinishReason.LENGTH for c in done)
        assert stage.policy.counts["dead"] == 0, "who says goodbye is not waited for"
        assert any(len(c.seen) == 2 for c in done), "what ran there went on elsewhere"
    play(run, dead_after_s=30.0)


def test_a_worker_without_the_run_s_keys_is_never_heard(play):
    async def run(stage):
        wire.make_keys(stage.folder / "others")
        await stage.join("stranger", keys="others")
        await stage.join("friend")
        assert len((await stage.all(stage.call(tokens=3))).ids) == 3
        assert set(stage.policy.workers) == {b"friend"}
    play(run)
