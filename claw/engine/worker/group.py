"""The worker's end of a broadcast: a version that comes through a group with the trainer.

Owns: asking the trainer for a sender, checking what it offers, having each bucket sent.
Does not own: the group itself (the engine), the other end (the trainer's broadcasts and sender).

A group holds the sender and one engine, is made for one version, and ends with it. Each bucket is
asked for over the wire and confirmed there before the engine waits for it, so an engine rarely
waits in a collective for a sender that is gone; when it does, the group's own deadline ends that.
"""

import time

import zmq
import zmq.asyncio

from claw.engine import wire
from claw.engine.tensors import natural
from claw.engine.versions import Shapes, VersionError
from claw.engine.wire import Message
from claw.engine.worker.engine import Engine, Offer
from claw.errors import WireError
from claw.records import Version, new_id

START_S = 60.0
"""more, for a sender to start and to read the version"""


class Broadcast:
    """One version on its way."""

    def __init__(self, group: "Group") -> None:
        self.group, self.id = group, new_id("send")
        self.socket = wire.open_socket(
            group.context, zmq.DEALER, group.address, bind=False, keys=group.keys)
        self.offer: Offer

    async def open(self, version: Version, world: int, backend: str) -> None:
        """Have the trainer start a sender."""
        await self._say("broadcast", owner=version.owner, adapter=version.adapter, world=world,
                        number=version.number, checksum=version.checksum, backend=backend,
                        patience_s=self.group.patience_s)
        ready = await self._hear("broadcast.ready", START_S + self.group.patience_s)
        try:
            buckets = tuple([(str(name), str(dtype), [int(n) for n in shape])
                             for name, dtype, shape in bucket] for bucket in ready["buckets"])
            self.offer = Offer(self.id, self.group.host, int(ready["port"]), world, buckets)
        except (TypeError, ValueError) as error:
            raise VersionError("the trainer's offer is not readable", found=str(error)) from error

    async def send(self, index: int) -> None:
        """Have one bucket sent; it is on its way now."""
        await self._say("broadcast.bucket", index=index)
        answer = await self._hear("broadcast.sending", self.group.patience_s)
        if answer.get("index") != index:
            raise VersionError("the trainer sends another bucket than was asked for",
                               found=str(answer.get("index")), allowed=str(index))

    def close(self) -> None:
        """Tell the sender that it is over; whether it hears that or not, it ends."""
        message = Message("broadcast.end", self.id)
        self.socket.send_multipart(wire.encode(message), zmq.DONTWAIT)
        self.socket.close(1000)

    async def _say(self, type: str, **fields: object) -> None:
        await self.socket.send_multipart(wire.encode(Message(type, self.id, fields)))

    async def _hear(self, type: str, patience_s: float) -> Message:
        until = time.monotonic() + patience_s
        while (left_s := until - time.monotonic()) > 0:
            if not await self.socket.poll(int(left_s * 1000) + 1):
                continue
            try:
                message = wire.decode(await self.socket.recv_multipart())
            except WireError as error:
                raise VersionError("the trainer sends garbage", found=str(error)) from error
            if message.id == self.id and message.type == type:
                return message
            if message.id == self.id and message.type == "error":
                raise VersionError("the trainer does not send the version",
                                   found=str(message.get("error")))
        raise VersionError("the trainer does not send the version: it is silent",
                           found=f"no {type} for {patience_s:g} s from {self.group.address}")


class Group:
    """How an engine gets versions from one trainer."""

    def __init__(self, address: str, keys: wire.Keys | None, patience_s: float) -> None:
        self.address, self.keys, self.patience_s = address, keys, patience_s
        self.context = zmq.asyncio.Context()
        is_tcp = address.startswith("tcp://")
        self.host = address.removeprefix("tcp://").rpartition(":")[0] if is_tcp else "127.0.0.1"

    async def meet(self, engine: Engine, version: Version, wanted: Shapes) -> Broadcast:
        """Have a sender started for exactly these tensors, and the engine join its group."""
        broadcast = Broadcast(self)
        try:
            await broadcast.open(version, 1 + engine.num_ranks, engine.backend)
            check_offer(broadcast.offer, wanted)
            await engine.join(broadcast.offer)
        except BaseException:
            broadcast.close()
            raise
        return broadcast


def check_offer(offer: Offer, wanted: Shapes) -> None:
    """Refuse what is not exactly the tensors of the version's files."""
    offered = {name: tuple(shape) for bucket in offer.buckets for name, _, shape in bucket}
    for name in sorted({*offered, *wanted}, key=natural):
        if offered.get(name) != wanted.get(name):
            raise VersionError(
                "the trainer offers other tensors than the version's; the first that differs is "
                "named", found=f"{name}: {offered.get(name, 'is missing')}",
                allowed=str(wanted.get(name, "not in the version")))
