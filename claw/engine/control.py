"""Ask a running actor one question (the command line and the launcher do)."""

import time
from typing import Any

import zmq

from claw.engine import wire
from claw.errors import ClawError


def ask(
    address: str, type: str, fields: dict[str, Any] | None = None, *,
    timeout_s: float = 10.0, keys: wire.Keys | None = None,
) -> dict[str, Any]:
    """Send one message to the actor's runners socket and return the fields of its reply."""
    context = zmq.Context()
    socket = wire.open_socket(context, zmq.DEALER, address, bind=False, keys=keys)
    try:
        id = f"control-{time.monotonic_ns()}"
        socket.send_multipart(wire.encode(wire.Message(type, id, fields or {})))
        reply = _answer(socket, id, time.monotonic() + timeout_s)
    finally:
        socket.close(linger=0)
        context.term()
    if reply is None:
        raise ClawError(
            "the run does not answer", found=f"no reply to {type!r} within {timeout_s:g} s",
            do="look at logs/actor.log in the run folder",
        )
    if reply.get("error"):
        raise ClawError(f"the run refused {type!r}", found=str(reply.get("error")))
    return reply.fields


def _answer(socket: Any, id: str, until: float) -> wire.Message | None:
    while (left := until - time.monotonic()) > 0:
        if socket.poll(int(left * 1000) + 1):
            message = wire.decode(socket.recv_multipart())
            if message.id == id:
                return message
    return None
