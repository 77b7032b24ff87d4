"""Workers on real sockets: death in mid-stream, overload, cancel, late chunks, bad numbers."""

import asyncio
from contextlib import asynccontextmanager

import numpy as np
import pytest
import zmq
import zmq.asyncio
from actor_doubles import FakeWorker

from claw.engine import wire
from claw.engine.actor.call import GenerationError
from claw.engine.actor.policy import MAX_ATTEMPTS, Policy, new_call
from claw.records import FinishReason, Sampling

TEXT = "abcdefghijklmnopqrstuvwxyz"


class Bench:
    """A policy behind a ROUTER, as the actor has it."""

    def __init__(self, address, chat, dead_after_s, max_waiting):
        self.address, self.chat = address, chat
        self._context = zmq.asyncio.Context()
        self.socket = wire.open_socket(self._context, zmq.ROUTER, address, bind=True)
        self.policy = Policy(self.send, chat.stop_ids, dead_after_s=dead_after_s,
                             max_waiting=max_waiting)
        self.workers, self.calls = [], 0
        self._tasks = [asyncio.create_task(self.listen()), asyncio.create_task(self.tend())]

    async def send(self, peer, message):
        await self.socket.send_multipart([peer, *wire.encode(message)])

    async def listen(self):
        while True:
            peer, *frames = await self.socket.recv_multipart()
            await self.policy.heard(peer, wire.decode(frames))

    async def tend(self):
        while True:
            await asyncio.sleep(0.05)
            await self.policy.tend()

    async def worker(self, reply=lambda _: TEXT, **more):
        made = FakeWorker(self.address, self.chat, reply, **more)
        self.workers.append(made)
        known = len(self.policy.workers)
        await made.hello()
        async with asyncio.timeout(5):
            while len(self.policy.workers) == known and not more.get("name"):
                await asyncio.sleep(0.005)
        return made

    def call(self, text="hi", *, deadline_s=10.0, session="", **sampling):
        self.calls += 1
        return new_call(f"turn_{self.calls}", self.chat.encode(text), Sampling(**sampling),
                        session=session, owner="default", adapter="default",
                        deadline_s=deadline_s)

    async def all(self, call):
        """Return the text of a call, and its finish reason."""
        async for _ in self.policy.generate(call):
            pass
        ids = np.concatenate([c.ids for c in call.chunks])
        return self.chat.decode(ids), call.finish

    def close(self):
        for task in self._tasks:
            task.cancel()
        for worker in self.workers:
            worker.close()
        self.socket.close(0)
        self._context.term()


def play(function, chat, sockets, *, dead_after_s=5.0, max_waiting=4):
    @asynccontextmanager
    async def bench():
        made = Bench(f"ipc://{sockets}/workers", chat, dead_after_s, max_waiting)
        try:
            yield made
        finally:
            made.close()

    async def main():
        async with asyncio.timeout(20), bench() as made:
            await function(made)

    asyncio.run(main())


def test_tokens_arrive_in_order_and_whole(chat, sockets):
    async def run(bench):
        await bench.worker()
        call = bench.call()
        assert await bench.all(call) == (TEXT + "<|im_end|>", FinishReason.STOP)
        made = call.completion(FinishReason.STOP, 4)
        assert made.topk_ids.shape == (27, 4) and made.logps.dtype == np.float32
        assert call.problem == ""
    play(run, chat, sockets)


def test_a_worker_that_dies_in_mid_stream_is_continued_elsewhere(chat, sockets):
    async def run(bench):
        dying = await bench.worker()
        dying.die_after = 12
        call = bench.call()
        stream = asyncio.create_task(bench.all(call))
        await dying.until("generate")
        while call.num_tokens < 12:
            await asyncio.sleep(0.01)
        dying._beats.cancel()  # silence
        other = await bench.worker(lambda prompt: TEXT[len(prompt) - 2:], pid=2)
        text, finish = await stream
        assert (text, finish) == (TEXT + "<|im_end|>", FinishReason.STOP)
        again = other.of("generate")[0]
        assert chat.decode(again.arrays["prompt_ids"]) == "hi" + TEXT[:12]
        assert again["sampling"]["max_tokens"] == 512 - 12
        assert bench.policy.counts["again"] == 1 and bench.policy.counts["dead"] == 1
        late = dying.arrays(chat.encode("LATE"), 4)
        await dying.send("generate.chunk", "turn_1.0", late, start=12)
        await dying.until("cancel")
        assert bench.policy.counts["late"] == 1
    play(run, chat, sockets, dead_after_s=0.6)


def test_a_restarted_worker_gets_its_requests_again_when_it_comes_back(chat, sockets):
    async def run(bench):
        first = await bench.worker(name="worker-0")
        await asyncio.sleep(0.1)
        first.hold.clear()
        stream = asyncio.create_task(bench.all(bench.call()))
        await first.until("generate")
        first.close()
        bench.workers.remove(first)
        await bench.worker(name="worker-0", pid=99)
        assert (await stream)[0] == TEXT + "<|im_end|>"
    play(run, chat, sockets)


def test_no_worker_gets_more_than_it_has_room_for_and_the_rest_is_refused(chat, sockets):
    async def run(bench):
        worker = await bench.worker(slots=1, queue=1)
        worker.hold.clear()
        streams = [asyncio.create_task(bench.all(bench.call())) for _ in range(2 + 3)]
        await worker.until("generate", count=2)
        await asyncio.sleep(0.1)
        assert len(worker.of("generate")) == 2
        with pytest.raises(GenerationError) as refused:
            await bench.all(bench.call())
        assert refused.value.code == "overloaded"
        worker.hold.set()
        assert {text for text, _ in await asyncio.gather(*streams)} == {TEXT + "<|im_end|>"}
        assert not bench.policy._by_wire and not bench.policy._waiting
    play(run, chat, sockets, max_waiting=3)


def test_leaving_early_cancels_at_the_worker(chat, sockets):
    async def run(bench):
        worker = await bench.worker(pace_s=0.5)
        stream = bench.policy.generate(bench.call())
        await anext(stream)
        await stream.aclose()
        assert (await worker.until("cancel")).id == "turn_1.0"
        assert bench.policy.counts["late"] == 0
        assert not bench.policy._by_wire and not next(iter(bench.policy.workers.values())).calls
    play(run, chat, sockets)


def test_a_deadline_ends_a_request_with_what_it_has_or_says_so(chat, sockets):
    async def run(bench):
        worker = await bench.worker(pace_s=0.1)
        call = bench.call(deadline_s=0.25)
        text, finish = await bench.all(call)
        assert TEXT.startswith(text) and finish is FinishReason.CANCELLED
        assert call.problem == "deadline"
        await worker.until("cancel")
        worker.hold.clear()
        with pytest.raises(GenerationError) as late:
            await bench.all(bench.call(deadline_s=0.1))
        assert late.value.code == "deadline"
    play(run, chat, sockets)


def test_without_a_worker_a_request_waits_for_one(chat, sockets):
    async def run(bench):
        stream = asyncio.create_task(bench.all(bench.call()))
        await asyncio.sleep(0.1)
        await bench.worker()
        assert (await stream)[0].startswith(TEXT)
        bench.policy.workers.clear()
        with pytest.raises(GenerationError) as none:
            await bench.all(bench.call(deadline_s=0.1))
        assert none.value.code == "unavailable"
    play(run, chat, sockets)


def test_sessions_stick_and_others_go_where_there_is_room(chat, sockets):
    async def run(bench):
        one, two = await bench.worker(), await bench.worker(pid=2)
        await bench.all(bench.call(session="s"))
        home, away = (one, two) if one.of("generate") else (two, one)
        home.hold.clear()
        streams = []
        for count in (2, 3):  # the second goes to the busier worker: the prefix is there
            streams.append(asyncio.create_task(bench.all(bench.call(session="s"))))
            await home.until("generate", count=count)
        streams.append(asyncio.create_task(bench.all(bench.call(session="t"))))
        await away.until("generate")
        home.hold.set()
        await asyncio.gather(*streams)
    play(run, chat, sockets)


def without(name):
    return lambda arrays: {k: v for k, v in arrays.items() if k != name}


def changed(name, change):
    return lambda arrays: arrays | {name: change(arrays[name])}


@pytest.mark.parametrize(("spoil", "problem"), [
    (without("logps"), "logps is missing"),
    (changed("logps", lambda a: a * np.nan), "not finite"),
    (changed("logps", lambda a: a * np.inf), "not finite"),
    (changed("logps", lambda a: a * 0 + 1), "above 0"),
    (changed("logps", lambda a: a[1:]), "logps is of shape"),
    (changed("topk_ids", lambda a: a[:, :2]), "topk_ids is of shape"),
    (changed("topk_logps", lambda a: a * np.nan), "not a number"),
    (changed("versions", lambda a: a - 5), "no version"),
    (without("versions"), "versions is missing"),
])
def test_unfit_numbers_are_a_problem_of_the_turn_and_the_text_is_served(
    chat, sockets, spoil, problem
):
    async def run(bench):
        worker = await bench.worker()
        worker.spoil = spoil
        call = bench.call()
        assert (await bench.all(call))[0] == TEXT + "<|im_end|>"
        assert problem in call.problem
        assert len(call.completion(FinishReason.STOP, 4).logps) == 27
    play(run, chat, sockets)


def test_minus_infinity_in_the_top_k_is_a_number(chat, sockets):
    async def run(bench):
        worker = await bench.worker()
        worker.spoil = changed("topk_logps", lambda a: a - np.inf)
        call = bench.call()
        await bench.all(call)
        assert call.problem == ""
    play(run, chat, sockets)


@pytest.mark.parametrize("spoil", [without("ids"), changed("ids", lambda a: a.reshape(1, -1)),
                                   changed("ids", lambda a: a.astype(np.float32))])
def test_a_chunk_without_ids_ends_the_request_and_nobody_else(chat, sockets, spoil):
    async def run(bench):
        worker = await bench.worker()
        worker.spoil = spoil
        with pytest.raises(GenerationError, match="bad chunk"):
            await bench.all(bench.call())
        worker.spoil = lambda arrays: arrays
        assert (await bench.all(bench.call()))[1] is FinishReason.STOP
    play(run, chat, sockets)


def test_a_worker_that_always_fails_is_not_asked_for_ever(chat, sockets):
    async def run(bench):
        worker = await bench.worker()
        worker._generate = lambda m: worker.send("generate.error", m.id, code="overloaded",
                                                 message="full")
        with pytest.raises(GenerationError, match="given up"):
            await bench.all(bench.call())
        assert len(worker.of("generate")) == MAX_ATTEMPTS
    play(run, chat, sockets)


def test_a_refused_request_is_not_tried_again(chat, sockets):
    async def run(bench):
        worker = await bench.worker()
        worker._generate = lambda m: worker.send("generate.error", m.id, code="bad_request",
                                                 message="no")
        with pytest.raises(GenerationError) as refused:
            await bench.all(bench.call())
        assert refused.value.code == "bad_request" and len(worker.of("generate")) == 1
    play(run, chat, sockets)
