"""A small model folder, and the peers of an actor, for tests: real sockets, no torch."""

import asyncio
import json
import os
import sys
from collections.abc import Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import zmq
import zmq.asyncio
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from claw import config as settings
from claw.engine import wire
from claw.engine.wire import Message
from claw.records import Loss, Sample, Update, Version
from claw.sdk.app import Ask

SPECIAL = ("<|pad|>", "<|bos|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>")
END = 3
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
STRIPS_THINKING = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'].split('</think>')[-1] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TRIMS = CHATML.replace("message['content']", "message['content'] | trim")
INDENTED = """
{% for message in messages %}
    {% if message['role'] != 'tool' %}
<|im_start|>{{ message['role'] }}
{{ message['content'] }}<|im_end|>
    {% endif %}
{% endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
"""
WITH_TOOLS = (
    "{% if tools %}<|im_start|>system\n<tools>{% for tool in tools %}{{ tool | tojson }}\n"
    "{% endfor %}</tools>{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}"
    "{% for call in message.tool_calls or [] %}<tool_call>\n"
    '{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}\n'
    "</tool_call>{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def make_model(folder: Path, template: str = CHATML, context: int = 2048) -> Path:
    """Write a folder with a byte-level tokenizer, one merge (a + l), and a template."""
    folder.mkdir(parents=True, exist_ok=True)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [*SPECIAL, *letters, "al"]
    vocab = {word: i for i, word in enumerate(words)}
    tokenizer = Tokenizer(models.BPE(vocab, merges=[("a", "l")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(word, special=True) for word in SPECIAL])
    tokenizer.save(str(folder / "tokenizer.json"))
    write = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": SPECIAL[3],
             "pad_token": SPECIAL[0], "bos_token": SPECIAL[1]}
    if template:
        write["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(write))
    (folder / "config.json").write_text(json.dumps(
        {"vocab_size": len(words), "eos_token_id": END, "max_position_embeddings": context}
    ))
    return folder


def run_config(**changes: Any) -> settings.RunConfig:
    """Return settings for tests: quick deadlines; `a__b=c` sets a.b."""
    values: dict[str, Any] = {
        "plugin_name": "personal", "wire": {"heartbeat_s": 0.2, "dead_after_s": 2.0},
        "worker": {"context": 1024, "slots": 2, "queue": 2}, "rollout": {"max_tokens": 64},
    }
    for key, value in changes.items():
        section, _, name = key.partition("__")
        if name:
            values.setdefault(section, {})[name] = value
        else:
            values[section] = value
    return settings.parse(values)


class Peer:
    """A DEALER that keeps what it hears; `on` maps a type to a coroutine function."""

    def __init__(self, address: str, name: str = "") -> None:
        self._context = zmq.asyncio.Context()
        self.socket = wire.open_socket(self._context, zmq.DEALER, address, bind=False,
                                       identity=name.encode())
        self.seen: list[Message] = []
        self._task = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        while True:
            message = wire.decode(await self.socket.recv_multipart())
            self.seen.append(message)
            await self.heard(message)

    async def heard(self, message: Message) -> None:
        pass

    async def send(self, type: str, id: str = "", arrays: Any = None, **fields: Any) -> None:
        message = Message(type, id, fields, arrays or {})
        await self.socket.send_multipart(wire.encode(message))

    async def send_message(self, message: Message) -> None:
        await self.socket.send_multipart(wire.encode(message))

    def of(self, *types: str, id: str | None = None) -> list[Message]:
        return [m for m in self.seen if m.type in types and id in (None, m.id)]

    async def until(
        self, *types: str, id: str | None = None, count: int = 1, seconds: float = 10.0
    ) -> Message:
        """Wait for the count-th message of these types; return it."""
        async with asyncio.timeout(seconds):
            while len(found := self.of(*types, id=id)) < count:
                await asyncio.sleep(0.005)
        return found[count - 1]

    def close(self) -> None:
        self._task.cancel()
        self.socket.close(0)
        self._context.term()


class FakeWorker(Peer):
    """Says what `reply(prompt text)` returns, a few tokens at a time."""

    def __init__(
        self, address: str, chat: Any, reply: Callable[[str], str], *, name: str = "",
        step: int = 4, pace_s: float = 0.0, pid: int = 1, slots: int = 2, queue: int = 2,
        context: int = 4096,
    ) -> None:
        self.chat, self.reply, self.step, self.pace_s = chat, reply, step, pace_s
        self.pid, self.slots, self.queue, self.context = pid, slots, queue, context
        self.version, self.k = 0, None
        self.cancelled: set[str] = set()
        self.hold = asyncio.Event()
        self.hold.set()
        self.spoil: Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]] = lambda a: a
        self.die_after: int | None = None
        """tokens after which it goes silent"""
        self._tasks: set[asyncio.Task[None]] = set()
        super().__init__(address, name)
        self._beats = asyncio.create_task(self._beat())

    async def hello(self) -> None:
        await self.send("worker.hello", kind="fake", model="m", vocab_size=262,
                        context=self.context,
                        slots=self.slots, queue=self.queue, pid=self.pid,
                        versions=[["default", "default", self.version]])

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(0.2)
            await self.send("worker.beat", running=0, waiting=0, tokens_per_s=1.0,
                            versions=[["default", "default", self.version]])

    async def heard(self, message: Message) -> None:
        if message.type == "cancel":
            self.cancelled.add(message.id)
        if message.type == "version.load":
            self.version = wire.read_record(message, Version).number
        if message.type == "generate":
            task = asyncio.create_task(self._generate(message))
            self._tasks.add(task)

    async def _generate(self, message: Message) -> None:
        await self.hold.wait()
        s = message["sampling"]
        prompt = self.chat.decode(message.arrays["prompt_ids"])
        ids = self.chat.encode(self.reply(prompt) + "<|im_end|>")
        finish = "stop" if len(ids) <= s["max_tokens"] else "length"
        ids = ids[: s["max_tokens"]]
        for start in range(0, len(ids), self.step):
            if message.id in self.cancelled:
                await self.send("generate.done", message.id, finish_reason="cancelled",
                                cached_tokens=0)
                return
            if self.die_after is not None and start >= self.die_after:
                return
            part = ids[start : start + self.step]
            arrays = self.spoil(self.arrays(part, s["logprobs_k"]))
            await self.send("generate.chunk", message.id, arrays, start=start)
            await asyncio.sleep(self.pace_s)
        await self.send("generate.done", message.id, finish_reason=finish, cached_tokens=0)

    def arrays(self, ids: np.ndarray, k: int) -> dict[str, np.ndarray]:
        n = len(ids)
        topk = np.tile(np.arange(k, dtype=np.int32), (n, 1))
        return {
            "ids": ids.astype(np.int32), "logps": np.full(n, -0.5, np.float32),
            "topk_ids": topk, "topk_logps": np.full((n, k), -1.0, np.float32),
            "versions": np.full(n, self.version, np.int32),
        }

    def close(self) -> None:
        self._beats.cancel()
        for task in self._tasks:
            task.cancel()
        super().close()


class FakeRunner(Peer):
    """Asks for turns as an app does."""

    _asked = 0

    async def ask(self, messages: list[Any], *, trace_id: str = "", **ask: Any) -> str:
        """Send an ask; return its id."""
        self._asked += 1
        id = f"ask-{self._asked}"
        fields, _ = wire.pack(Ask(messages, **ask))
        await self.send("turn.ask", id, record=fields, trace_id=trace_id)
        return id

    async def say(self, messages: list[Any], *, seconds: float = 10.0, **ask: Any) -> Message:
        """Ask and wait; return turn.done or turn.error."""
        id = await self.ask(messages, **ask)
        return await self.until("turn.done", "turn.error", id=id, seconds=seconds)

    async def question(self, type: str, **fields: Any) -> dict[str, Any]:
        self._asked += 1
        id = f"q-{self._asked}"
        await self.send(type, id, **fields)
        return (await self.until("reply", "trace.opened", id=id)).fields


async def until_known(address: str, num_workers: int = 1) -> None:
    """Wait until the actor knows its workers: a hello and an ask come on sockets of their own."""
    peer = FakeRunner(address)
    try:
        while len((await peer.question("status"))["workers"]) < num_workers:
            await asyncio.sleep(0.01)
    finally:
        peer.close()


class FakeTrainer(Peer):
    """Leases and acknowledges."""

    _asked = 0

    async def hello(
        self, step: int = 0, last_lease: str = "", versions: Any = (), **more: Any
    ) -> Message:
        """Of one learner, whose last lease made the newest of the versions."""
        newest = max((v.number for v in versions), default=0)
        one = {"step": step, "last_lease": last_lease, "why": "", "left_out": {},
               "last_update": {"version": newest, "step": step},
               "versions": [wire.pack(v)[0] for v in versions]}
        return await self.hello_of([one | more], step)

    async def hello_of(self, learners: list[dict[str, Any]], step: int = 0) -> Message:
        self._asked += 1
        id = f"hello-{self._asked}"
        await self.send("trainer.hello", id, step=step, learners=learners)
        return await self.until("trainer.welcome", id=id)

    async def lease(
        self, max_samples: int = 1, max_wait_s: float = 0.0, poll_s: float = 5.0
    ) -> tuple[str, list[Sample], Message]:
        self._asked += 1
        id = f"lease-{self._asked}"
        await self.send("lease", id, max_samples=max_samples, max_wait_s=max_wait_s, poll_s=poll_s)
        got = await self.until("lease.samples", "lease.empty", id=id)
        if got.type == "lease.empty":
            return "", [], got
        return got["lease_id"], wire.read_samples(got), got

    async def ack(
        self, lease_id: str, number: int, *, step: int = 1, path: str = "", **more: Any
    ) -> None:
        update = Update(step, number, lease_id, Loss(0.5, 0.5, 0.0, 0.0), 1.0, 1e-5, 0.1)
        fields, arrays = wire.pack(update)
        self._asked += 1
        id = f"ack-{self._asked}"
        await self.send("lease.ack", id, arrays, record=fields, lease_id=lease_id,
                        version=wire.pack(version(number, path))[0], **more)
        await self.until("lease.acked", id=id)


def version(number: int, path: str = "", **changes: Any) -> Version:
    return Version("default", "default", number, number - 1, "0" * 64, kind="lora", path=path,
                   **changes)


def addresses(folder: Path) -> dict[str, str]:
    return {name: f"ipc://{folder}/{name}" for name in ("workers", "runners", "trainer")}


@asynccontextmanager
async def actor_process(
    config: settings.RunConfig, model_dir: Path, run_dir: Path, sockets: Path, *,
    resume: bool = False,
):
    """Start `python -m claw.engine.actor` as the launcher does; stop it at the end."""
    run_dir.mkdir(parents=True, exist_ok=True)
    spec = run_dir / "actor.json"
    spec.write_text(json.dumps({
        "config": settings.resolved(config), "sockets": addresses(sockets),
        "model_dir": str(model_dir), "run_dir": str(run_dir), "resume": resume,
        "launcher": os.getpid(),
    }))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "claw.engine.actor", "--spec", str(spec)
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                await asyncio.wait_for(process.wait(), 10)
            except TimeoutError:
                process.kill()
                raise
