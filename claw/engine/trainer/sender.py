"""One version's tensors, sent through a group of torch.distributed: this process and one engine.

Owns: the group as rank 0, the buckets, each sent when the worker asks for it.
Does not own: who asks, when this process is killed (broadcasts), the worker's end (worker.group).

`python -m claw.engine.trainer.sender --spec FILE.json` is started by the trainer's depot for each
worker and version. What is sent is read from the version's folder after its files were checked, so
training is not touched. The engine makes its side of the group with internals of torch;
`open_group` is the same recipe.
"""

import argparse
import fcntl
import json
import os
import socket
import struct
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import zmq

from claw.engine import versions, wire
from claw.engine.buckets import plan
from claw.engine.wire import Message

IDLE = 4
"""a worker that asks for nothing for so many times its patience is gone"""
PARENT_S = 0.5
SIOCGIFADDR = 0x8915


class Sender:
    """Rank 0 of one group."""

    def __init__(self, spec: dict[str, Any], link: Any) -> None:
        self.spec, self.link = spec, link
        self.patience = timedelta(seconds=spec["patience_s"])
        self.device = device(spec["backend"], spec["device"])
        self.tensors = self.read()
        self.buckets = plan(self.tensors)

    def read(self) -> dict[str, Any]:
        """The tensors of the folder, which is the announced version; they stay on the disk."""
        from safetensors.torch import load_file

        folder = Path(self.spec["folder"])
        manifest = versions.read_manifest(folder, self.spec["checksum"])
        versions.check_files(folder, manifest)
        found: dict[str, Any] = {}
        for name in manifest.weight_files:
            found |= load_file(folder / name)
        return found

    def run(self) -> None:
        host = self.spec["host"]
        if name := interface(host):  # where gloo and NCCL listen
            os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
            os.environ.setdefault("NCCL_SOCKET_IFNAME", name)
        with socket.create_server((host, 0)) as listening:
            self.say("broadcast.ready", port=listening.getsockname()[1], buckets=self.buckets)
            group = open_group(listening, self.spec, self.patience)
        while (message := self.hear()).type != "broadcast.end":
            self.send(int(message["index"]), group)

    def send(self, index: int, group: Any) -> None:
        import torch.distributed as dist

        flat = self.flat(index)  # so that only the sending itself is waited for
        self.say("broadcast.sending", index=index)
        dist.broadcast(flat, src=0, group=group)

    def flat(self, index: int) -> Any:
        """The bytes of a bucket, where the backend wants them."""
        import torch

        rows = [self.tensors[name].flatten().view(torch.uint8)
                for name, _, _ in self.buckets[index]]
        return torch.cat(rows).to(self.device)

    def say(self, type: str, **fields: Any) -> None:
        self.link.send_multipart(wire.encode(Message(type, self.spec["id"], fields)))

    def hear(self) -> Message:
        """What the worker wants next; TimeoutError when it is gone."""
        idle_s = IDLE * self.patience.total_seconds()
        if not self.link.poll(int(idle_s * 1000)):
            raise TimeoutError(f"the worker asked for nothing for {idle_s:g} s")
        return wire.decode(wire.receive(self.link))


def open_group(listening: socket.socket, spec: dict[str, Any], patience: timedelta) -> Any:
    """The group, once the engine's ranks are in it: made as SGLang makes its side."""
    from torch.distributed import PrefixStore, TCPStore
    from torch.distributed.distributed_c10d import Backend, _new_process_group_helper, _world

    host, port = spec["host"] or "127.0.0.1", listening.getsockname()[1]
    store = PrefixStore(spec["id"], TCPStore(
        host, port, spec["world"], True, patience, master_listen_fd=listening.detach()))
    group, _ = _new_process_group_helper(
        spec["world"], 0, [], Backend(spec["backend"]), store, group_name=spec["id"],
        timeout=patience)
    _world.pg_group_ranks[group] = {i: i for i in range(spec["world"])}
    return group


def device(backend: str, trains_on: str) -> str:
    """Where tensors are sent from: the trainer's GPU, or the CPU for gloo."""
    import torch

    if backend == "gloo":
        return "cpu"
    if not torch.cuda.is_available() or trains_on == "cpu":
        raise RuntimeError("NCCL sends from a GPU, and the trainer has none")
    found = "cuda:0" if trains_on in ("auto", "cuda") else trains_on
    torch.cuda.set_device(found)
    return found


def interface(host: str) -> str:
    """The network interface with this address; empty when none has it (a name, or all of them)."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            try:
                row = fcntl.ioctl(asked, SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue  # it has no address
            if socket.inet_ntoa(row[20:24]) == host:
                return name
    return ""


def _end_with(parent: int) -> None:
    """In a thread: a trainer that was killed must not leave a sender behind."""
    while os.getppid() == parent:
        time.sleep(PARENT_S)
    os._exit(1)


def main(make: type[Sender] = Sender) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--spec", required=True, type=Path, help="JSON file of the depot")
    spec = json.loads(parser.parse_args().spec.read_text(encoding="utf-8"))
    threading.Thread(target=_end_with, args=(spec["parent"],), daemon=True).start()
    context = zmq.Context()
    link = wire.open_socket(context, zmq.DEALER, spec["link"], bind=False,
                            identity=spec["id"].encode())
    link.setsockopt(zmq.LINGER, 2000)
    try:
        make(spec, link).run()
    except Exception as error:  # torch's own kinds too: the worker hears of all of them
        said = f"{type(error).__name__}: {error}"[:500]
        link.send_multipart(wire.encode(Message("error", spec["id"], {"error": said})))
    link.close()
    context.term()
    os._exit(0)  # a group whose other rank is gone would be waited for


if __name__ == "__main__":
    main()
