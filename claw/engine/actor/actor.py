"""The actor: requests become turns, turns become samples. One process, one loop.

Owns: the three sockets, whose message goes where, what happens once a second, the end.
Does not own: anything that is done with a message (the files beside this one).
"""

import asyncio
import logging
import os
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import zmq

from claw import config as settings
from claw.config import RunConfig
from claw.engine import parent, pulse, wire
from claw.engine.actor.conversations import ADAPTER
from claw.engine.actor.parts import Parts
from claw.engine.actor.runner_link import RunnerLink
from claw.engine.actor.trainer_link import TrainerLink
from claw.engine.actor.worker_link import WorkerLink
from claw.engine.monitor import Monitor
from claw.engine.port import Port
from claw.engine.wire import Message
from claw.errors import ClawError, WireError
from claw.records import DEFAULT_OWNER, Update, Version

log = logging.getLogger(__name__)

TEND_S = 1.0
LINKS = ("workers", "runners", "trainer")
Send = Callable[[bytes, Message], Awaitable[None]]


class Actor:
    """Listens to workers, runners and the trainer until it is told to stop."""

    def __init__(
        self, config: RunConfig, *, sockets: dict[str, str], model_dir: Path | str,
        run_dir: Path | str, resume: bool = False,
    ) -> None:
        self.config, self._run_dir = config, Path(run_dir)
        self.garbage: Counter[str] = Counter()
        self._stopping = asyncio.Event()
        self._parent = parent.pid()
        self._context = zmq.Context()
        keys = wire.keys_of(config.wire.keys)
        self._ports = {
            name: Port(wire.open_socket(self._context, zmq.ROUTER, sockets[name], bind=True,
                                        keys=keys))
            for name in LINKS
        }
        self.monitor = Monitor(self._run_dir, config.track, settings.resolved(config))
        self.parts = parts = Parts(config, Path(model_dir), self._run_dir,
                                   self._sender("workers"), resume=resume)
        self.trainer = TrainerLink(self._sender("trainer"), parts.journal, parts.ledger,
                                   parts.buffer, parts.published, self._on_update, parts.consent)
        parts.better.roll_back = lambda owner, to: self.trainer.roll_back(owner, ADAPTER, to)
        self.workers = WorkerLink(self._sender("workers"), parts, self.trainer.tell_refused,
                                  self._measure_now)
        self.runners = RunnerLink(self._sender("runners"), parts, self.trainer, self.status,
                                  self.stop, self._run_dir)

    # --- the loop ----------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve until SIGTERM, `end`, or the parent's death; then flush."""
        self.parts.start()
        links = {"workers": self.workers, "runners": self.runners, "trainer": self.trainer}
        tasks = [asyncio.create_task(self._listen(name, link.heard))
                 for name, link in links.items()]
        tasks.append(asyncio.create_task(self._tend()))
        stopped = asyncio.create_task(self._stopping.wait())
        try:
            done, _ = await asyncio.wait([*tasks, stopped], return_when=asyncio.FIRST_COMPLETED)
            for task in done - {stopped}:
                task.result()  # a loop that ends by itself is our own bug
        finally:
            await self._end([*tasks, stopped])

    async def _listen(self, name: str, heard: Callable[[bytes, Message], Awaitable[bool]]) -> None:
        port = self._ports[name]
        while True:
            for peer, *frames in await port.following():
                await self._take(name, heard, peer, frames)
            await asyncio.sleep(0)

    async def _take(
        self, name: str, heard: Callable[[bytes, Message], Awaitable[bool]], peer: bytes,
        frames: list[bytes],
    ) -> None:
        id = ""
        try:
            message = wire.decode(frames)
            id = message.id
            if not await heard(peer, message):
                raise WireError(f"{name} send no message of type {message.type!r}")
        except (WireError, TypeError, ValueError, KeyError, AttributeError) as error:
            await self._refuse(name, peer, id, error)
        except Exception:  # one message must not end the actor
            log.exception("a message from %s failed", name)
            self.garbage[name] += 1

    async def _refuse(self, name: str, peer: bytes, id: str, error: Exception) -> None:
        """What a peer sent is no message of this link: count it and say so."""
        self.garbage[name] += 1
        log.warning("garbage from %s: %s: %s", name, type(error).__name__, error)
        said = str(error)[:500]
        fields = {"error": said, "text": said, "status": 400, "code": "bad_message"}
        await self._sender(name)(peer, Message("error", id, fields))

    def _sender(self, name: str) -> Send:
        async def send(peer: bytes, message: Message) -> None:
            try:
                frames = wire.encode(message)
                # a peer that does not read must not hold up the others
                self._ports[name].send([peer, *frames])
            except (zmq.Again, zmq.ZMQError) as error:
                self.garbage[f"unsent to {name}"] += 1
                log.warning("%s is not sent to %s: %s", message.type, name, error)
        return send

    # --- once a second -----------------------------------------------------------------------

    async def _tend(self) -> None:
        beat = 0
        while True:
            await asyncio.sleep(TEND_S)
            pulse.mark(pulse.LOOP)
            if os.getppid() != self._parent:
                log.warning("the parent process ended")
                return self.stop()
            beat += 1
            for part in (self.workers, self.runners, self.parts):
                try:
                    await part.tend()
                except Exception:  # keeping house must not end the actor
                    log.exception("tending failed")
            if beat % 10 == 0:
                self._measure()

    def _measure(self) -> None:
        s = self.status()
        values: dict[str, float] = {f"turns/{k}": n for k, n in s["turns"].items()}
        values |= {f"skipped/{k}": n for k, n in s["skipped"].items()}
        values |= {f"session/{k}": n for k, n in s["sessions"]["by"].items()}
        values |= {"samples/waiting": s["samples"]["waiting"],
                   "rollout/workers": len(s["workers"]),
                   "rollout/tokens_per_s": sum(w["tokens_per_s"] for w in s["workers"])}
        values |= {f"signals/{k}": n for k, n in s["signals"].items()}
        values |= {f"guard/{k}": n for k, n in s["guard"].items()}
        values |= {"guard/waiting": sum(s["quarantine"].values())}
        values |= {f"episodes/{k}": n for k, n in s["episodes"]["ended"].items()}
        values |= {f"outcome/{by}/mean": o["mean"] for by, o in s["episodes"]["outcomes"].items()}
        self.monitor.log(values, int(s["trainer"].get("step") or 0))

    def _measure_now(self, values: dict[str, float | str]) -> None:
        self.monitor.log(values, int(self.trainer.status.get("step") or 0))

    def _on_update(self, update: Update, version: Version, num_samples: int) -> None:
        counts = self.parts.ledger.counts()
        self.monitor.log({"actor/version": version.number, "actor/samples": num_samples,
                          "actor/trained": counts.get("trained", 0)}, update.step)

    def status(self, owner: str = DEFAULT_OWNER) -> dict[str, Any]:
        """Return how the run is, as plain values; versions are those of `owner`."""
        trainer = dict(self.trainer.status)
        if not self.trainer.is_heard(self.config.wire.dead_after_s):
            trainer["state"] = "none"
        trainer["silent_s"] = self.trainer.silent_s()
        found = self.parts.status(owner)
        if why := self.trainer.held.get(owner):
            found["warnings"].append(f"Learning has stopped. {why}")
        return found | {
            "trainer": trainer, "garbage": dict(self.garbage), "runners": self.runners.silent_s()}

    # --- the end -----------------------------------------------------------------------------

    def stop(self) -> None:
        self._stopping.set()

    async def _end(self, tasks: list[asyncio.Task[Any]]) -> None:
        pulse.rest(pulse.LOOP)
        await self.parts.stop()
        for name, peer in self._peers():
            await self._sender(name)(peer, Message("stop"))
        await asyncio.sleep(0.05)  # let the last messages leave
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.parts.journal.close()
        self.monitor.close()
        for port in self._ports.values():
            port.close()
        self._context.term()

    def _peers(self) -> list[tuple[str, bytes]]:
        found = [("workers", peer) for peer in self.parts.policy.workers]
        found += [("runners", peer) for peer in self.runners.peers]
        return found + ([("trainer", self.trainer.peer)] if self.trainer.peer else [])


def run(
    config: RunConfig, *, sockets: dict[str, str], model_dir: Path | str, run_dir: Path | str,
    resume: bool = False,
) -> None:
    """Run the actor until it is told to stop. `sockets` maps workers, runners, trainer."""
    if missing := sorted(set(LINKS) - set(sockets)):
        raise ClawError("the actor needs three sockets", found=f"no address for {missing[0]!r}")

    async def main() -> None:
        actor = Actor(config, sockets=sockets, model_dir=model_dir, run_dir=run_dir, resume=resume)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, actor.stop)
        loop.add_signal_handler(signal.SIGINT, lambda: None)  # the launcher decides, by SIGTERM
        await actor.run()

    asyncio.run(main())
