"""The door of an engine's process: read the spec, start the engine, serve, and end with its worker.

Owns: the life of the process. Does not own: serving (host), the engine.
"""

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import zmq
import zmq.asyncio

from claw import config as settings
from claw.config import RunConfig
from claw.engine import process, wire
from claw.engine.wire import Message
from claw.engine.worker.engine import Engine
from claw.engine.worker.group import Group
from claw.engine.worker.host import Host
from claw.engine.worker.shelf import Shelf
from claw.errors import ClawError, UsageError

PARENT_S = 0.5


def main(make: Callable[[RunConfig, Path], Engine]) -> None:
    """Serve the worker that started this process with the engine that `make` makes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--spec", required=True, type=Path, help="JSON file of the worker")
    file = parser.parse_args().spec
    spec = json.loads(file.read_text(encoding="utf-8"))
    tempfile.tempdir = str(file.parent)  # which goes with the worker, however this process ends
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr,
                        format="%(asctime)s engine %(levelname)s %(name)s: %(message)s")
    logging.getLogger("claw").setLevel(logging.INFO)
    context = zmq.Context()
    socket = wire.open_socket(context, zmq.PAIR, spec["address"], bind=False)
    socket.setsockopt(zmq.LINGER, 2000)
    try:
        _check_claw(spec["claw"])
        config, model_dir = settings.parse(spec["config"]), Path(spec["model_dir"])
        engine = make(config, model_dir)
        shelf = Shelf(engine, model_dir, config.gate.canary_tolerance, config.lora.rank,
                      config.sglang.stall_s, _group(config, spec.get("weights", "")))
        asyncio.run(_serve(engine, shelf, config, zmq.asyncio.Socket.shadow(socket)))
    except ClawError as error:
        socket.send_multipart(wire.encode(Message("lost", "", {"why": str(error)})))
    except Exception:
        logging.getLogger(__name__).exception("the engine's host failed")
    finally:
        socket.close()
        context.term()  # once what was said is read
        sys.stderr.flush()
        os.killpg(0, signal.SIGKILL)  # the engine's own processes too: nothing is left to save


def _check_claw(wanted: str) -> None:
    if process.version() != wanted:
        raise UsageError("the engine's environment has another claw than the worker",
                         found=process.version(), allowed=wanted,
                         do="install the same claw in both environments")


def _group(config: RunConfig, address: str) -> Group | None:
    """How versions come through a group, if they do."""
    if config.sglang.weights != "group":
        return None
    keys = wire.keys_of(config.wire.keys)
    return Group(address, keys, config.sglang.group_s)


async def _serve(engine: Engine, shelf: Shelf, config: RunConfig, socket: Any) -> None:
    await Host(engine, shelf, socket, config.sglang.stall_s).run()


def _end_with(parent: int) -> None:
    """In a thread: a worker that was killed must not leave an engine behind."""
    while os.getppid() == parent:
        time.sleep(PARENT_S)
    os.killpg(0, signal.SIGKILL)
