"""Who may connect to a CURVE socket: the answers that libzmq asks for (ZAP, RFC 27).

Owns: one thread in each context that has a server. Does not own: the keys, and which are let in.
"""

import logging
import threading
from collections.abc import Callable
from typing import Any

import zmq
from zmq.utils import z85

log = logging.getLogger(__name__)

ZAP = "inproc://zeromq.zap.01"
"""where libzmq asks"""
Admit = Callable[[bytes], bool]
"""whether who proved to hold this public key's secret may connect"""

_doors: dict[bytes, Admit] = {}
"""by domain, which is named by the public key of its sockets"""


def guard(context: zmq.Context, domain: bytes, admit: Admit) -> None:
    """Have `admit` asked for every client of the sockets of `domain`.

    Not zmq.auth's: it must be stopped before its context ends, which waits for it otherwise.
    """
    _doors[domain] = admit
    socket = zmq.Context.shadow(context.underlying).socket(zmq.REP)
    socket.setsockopt(zmq.LINGER, 0)
    try:
        socket.bind(ZAP)
    except zmq.ZMQError as error:
        socket.close()
        if error.errno != zmq.EADDRINUSE:
            raise
        return  # another server of this context has it
    threading.Thread(target=_answer, args=(socket,), name="claw-zap", daemon=True).start()


def _answer(socket: Any) -> None:
    try:
        while True:
            version, id, domain, _, _, mechanism, *credentials = socket.recv_multipart()
            is_in = mechanism == b"CURVE" and _is_admitted(domain, credentials)
            if not is_in:
                log.warning("a client with a key that is not admitted wanted to connect")
            status = (b"200", b"OK") if is_in else (b"400", b"this key is not admitted")
            socket.send_multipart([version, id, *status, b"", b""])
    except zmq.ContextTerminated:
        pass
    finally:
        socket.close()


def _is_admitted(domain: bytes, credentials: list[bytes]) -> bool:
    admit = _doors.get(domain)
    try:
        return admit is not None and admit(z85.encode(credentials[0]))
    except OSError as error:  # a file that goes while it is read must not end the answering
        log.warning("the keys of clients cannot be read: %s", error)
        return False
