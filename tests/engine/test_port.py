"""A socket on the loop: nothing that came is overlooked, and nobody waits for a full peer."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import zmq

from claw.engine.port import MAX_AT_ONCE, Port

SOON_S = 5.0


@pytest.fixture
def sockets(tmp_path: Path) -> Iterator[tuple[zmq.Socket, zmq.Socket]]:
    context = zmq.Context()
    ours, theirs = context.socket(zmq.PAIR), context.socket(zmq.PAIR)
    ours.bind(f"ipc://{tmp_path}/p")
    theirs.connect(f"ipc://{tmp_path}/p")
    theirs.RCVTIMEO = 5000
    yield ours, theirs
    theirs.close(0)
    ours.close(0)
    context.term()


def with_port(socket: zmq.Socket, work: Callable[[Port], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        with closing(Port(socket)) as port:
            return await asyncio.wait_for(work(port), 4 * SOON_S)
    return asyncio.run(main())


def test_what_came_while_nobody_read_is_read_whole_and_in_order(sockets: Any) -> None:
    ours, theirs = sockets
    for n in range(MAX_AT_ONCE + 5):
        theirs.send_multipart([b"%d" % n, b""])

    async def work(port: Port) -> list[bytes]:
        found: list[bytes] = []
        while len(found) < MAX_AT_ONCE + 5:
            new = await asyncio.wait_for(port.following(), SOON_S)
            assert 0 < len(new) <= MAX_AT_ONCE
            found += [frames[0] for frames in new]
        return found

    assert with_port(ours, work) == [b"%d" % n for n in range(MAX_AT_ONCE + 5)]


def test_a_message_that_comes_while_another_is_sent_wakes_who_waits(sockets: Any) -> None:
    """Whatever is done to a socket takes its sign of what has come; the descriptor stays silent."""
    ours, theirs = sockets

    async def work(port: Port) -> int:
        reading = asyncio.create_task(port.following())
        await asyncio.sleep(0.05)
        theirs.send(b"in")
        assert _has_come(port)
        time.sleep(0.05)  # a socket looks into its own post now and then only
        port.send([b"out"])  # before the loop has looked
        return len(await asyncio.wait_for(reading, SOON_S))

    assert with_port(ours, work) == 1
    assert theirs.recv() == b"out"


def _has_come(port: Port) -> bool:
    """Wait at the descriptor, which says that there is news and takes nothing."""
    poller = zmq.Poller()
    poller.register(int(port.socket.getsockopt(zmq.FD)), zmq.POLLIN)
    return bool(poller.poll(1000 * SOON_S))


def test_a_peer_that_does_not_read_is_told_of_at_once(tmp_path: Path) -> None:
    context = zmq.Context()
    ours = context.socket(zmq.PUSH)
    ours.SNDHWM = 1
    ours.bind(f"ipc://{tmp_path}/p")  # and nobody connects

    async def work(port: Port) -> None:
        with pytest.raises(zmq.Again):
            port.send([b"x"])

    with_port(ours, work)
    context.term()


def test_nothing_of_it_stays_on_the_loop(sockets: Any) -> None:
    ours, _ = sockets

    async def main() -> None:
        fd = int(ours.getsockopt(zmq.FD))
        Port(ours).close()
        assert not asyncio.get_running_loop().remove_reader(fd)

    asyncio.run(main())
