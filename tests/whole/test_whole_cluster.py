"""A run on the nodes of a real Ray cluster, which cannot see the run's folder."""

import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from system import System, until

from claw.engine import scratch, wire
from claw.engine.cluster.seat import PREFIX

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
NODES_S = 90.0
MOVED_S = 150.0
"""for a node that is gone to be noticed, and a worker to come up on another"""


class Nodes:
    """`nodes.py` as a process; `hidden` is a folder that its nodes see empty."""

    def __init__(self, hidden: Path, *cpus: int) -> None:
        words = [sys.executable, str(Path(__file__).parent / "nodes.py"), *map(str, cpus)]
        hide = 'mount -t tmpfs none "$0" && exec "$@"'
        self.popen = subprocess.Popen(
            ["unshare", "-m", "sh", "-c", hide, str(hidden), *words], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
            env=os.environ | {"RAY_USAGE_STATS_ENABLED": "0"},
        )
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self.address = self.line()
        assert self.line() == "ready"

    def _read(self) -> None:
        assert self.popen.stdout is not None
        for line in self.popen.stdout:
            self._lines.put(line.strip())

    def line(self) -> str:
        return self._lines.get(timeout=NODES_S)

    def remove(self, node: str) -> None:
        assert self.popen.stdin is not None
        print("remove", node, file=self.popen.stdin, flush=True)
        assert self.line() == "removed"

    def close(self) -> None:
        assert self.popen.stdin is not None
        self.popen.stdin.close()
        try:
            self.popen.wait(60)
        finally:
            if self.popen.poll() is None:
                os.killpg(self.popen.pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def hidden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where runs lie."""
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def nodes(hidden: Path, needs_ray: None) -> Iterator[Nodes]:
    made = Nodes(hidden, 2, 2)
    try:
        yield made
    finally:
        made.close()


def a_run(
    hidden: Path, visible: Path, nodes: Nodes, name: str, *settings: str, plugin: str = "personal"
) -> System:
    keys = hidden / f"{name}-keys"
    wire.make_keys(keys)
    port = 20000 + (os.getpid() * 10 + 100 * len(name)) % 20000
    made = System(
        hidden, visible / "model", f"cluster.address={nodes.address}", "cluster.place_s=60",
        f"wire.address=tcp://0.0.0.0:{port}", f"wire.keys='{keys}'", "wire.dead_after_s=20",
        f"worker.cache='{visible / 'cache'}'", *settings, name=name)
    made.words[2] = plugin
    made.words += ["--cluster", "ray"]
    return made


def seats() -> dict[int, str]:
    """Processes on this machine that sit in a seat."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if PREFIX in words:
            found[int(folder.name)] = words
    return found


def placed(system: System) -> dict[str, str]:
    """The node of each placed process, as the launcher last said."""
    about = json.loads((system.run / "run.json").read_text())
    return {name: seat["node"] for name, seat in about["placed"].items() if seat["node"]}


@pytest.fixture(scope="module")
def visible(whole_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What nodes have of their own: the model, and a place for versions."""
    folder = tmp_path_factory.mktemp("nodes")
    shutil.copytree(whole_model, folder / "model")
    return folder


@pytest.fixture(scope="module")
def served(hidden: Path, visible: Path, nodes: Nodes) -> Iterator[System]:
    """People are served here; one worker sits on a node."""
    system = a_run(hidden, visible, nodes, "served")
    try:
        yield system.start()
    finally:
        system.stop()


def say(system: System, text: str) -> Any:
    return system.client().chat.completions.create(
        model="claw-policy", messages=[{"role": "user", "content": text}], max_tokens=8)


def talk(system: System, text: str) -> None:
    """A question, its answer, and a reply that judges it."""
    first = say(system, text).choices[0].message.content
    system.client().chat.completions.create(model="claw-policy", max_tokens=8, messages=[
        {"role": "user", "content": text}, {"role": "assistant", "content": first},
        {"role": "user", "content": "That is wrong. Please be shorter."}])


def test_a_run_trains_through_a_placed_worker_and_a_placed_runner(
    hidden: Path, visible: Path, nodes: Nodes
) -> None:
    system = a_run(
        hidden, visible, nodes, "tasks", "rollout.n=1", "judge.kind=none", "train.method=grpo",
        "loss.truncated=keep", "train.max_steps=2", "train.batch_size=2", "rollout.max_turns=1",
        "rollout.max_tokens=8", "worker.context=1024", plugin="toolcall",
    )
    try:
        system.launch(*system.words)
        assert system.launcher is not None
        assert until(lambda: set(placed_or_none(system)) == {"worker-0", "runner"}, 90)
        system.launcher.wait(100)
        assert system.launcher.returncode == 0, system.said()
        assert "done: nothing is left to do" in system.said()
        assert system.steps() == 2
        assert "outcome" in (system.run / "logs" / "runner.log").read_text()
        assert until(lambda: not seats(), 15), seats()
    finally:
        system.stop()


def test_no_room_in_the_cluster_says_what_was_asked_and_what_it_has(
    hidden: Path, visible: Path, nodes: Nodes
) -> None:
    system = a_run(hidden, visible, nodes, "no-room", "cluster.worker_resources={GPU=3}",
                   "cluster.place_s=8")
    try:
        system.launch(*system.words)
        assert system.launcher is not None
        assert system.launcher.wait(90) != 0
        said = system.said()
        assert "no place for worker-0 within 8 s" in said
        assert "asked for GPU 3; it has 3 nodes" in said
        assert "cluster.worker_resources" in said
    finally:
        system.stop()


def placed_or_none(system: System) -> dict[str, str]:
    try:
        return placed(system)
    except (OSError, KeyError):
        return {}


def test_a_placed_worker_serves_versions_that_it_pulled_over_the_wire(served: System) -> None:
    for i in range(6):
        talk(served, f"Question {i}, what is it?")
    assert until(lambda: served.steps() >= 1, 120), served.said()
    log = served.run / "logs" / "worker-0.log"
    assert until(lambda: "MB pulled in" in log.read_text(), 60), log.read_text()[-3000:]


def test_no_secret_of_the_run_is_in_a_command_an_environment_or_a_log(served: System) -> None:
    secret = (served.runs / "served-keys" / "wire.secret").read_bytes()
    inside = seats()
    assert inside, "a worker sits in a seat"
    for pid in inside:
        assert secret not in Path(f"/proc/{pid}/environ").read_bytes()
        assert secret not in Path(f"/proc/{pid}/cmdline").read_bytes()
    for file in (*(served.run / "logs").iterdir(), *(served.run / "specs").iterdir()):
        assert secret not in file.read_bytes(), file


def test_a_node_that_dies_costs_no_accepted_turn_and_its_worker_moves(
    served: System, nodes: Nodes
) -> None:
    before = placed(served)["worker-0"]
    answered: list[str] = []
    failed: list[str] = []
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            try:
                answered.append(say(served, f"Say {len(answered)}").id)
            except Exception as error:  # refused while no worker is there: it was not accepted
                failed.append(str(error))
                time.sleep(0.5)

    asking = threading.Thread(target=ask)
    asking.start()
    assert until(lambda: len(answered) > 3, 60)
    nodes.remove(before)
    assert until(lambda: placed(served).get("worker-0", before) != before, MOVED_S), served.said()
    count = len(answered)
    assert until(lambda: len(answered) > count + 3, MOVED_S), failed[-3:]
    over.set()
    asking.join(130)
    known = {row[0] for row in served.rows("SELECT id FROM turns")}
    lost = [id for id in answered if id.removeprefix("chatcmpl-") not in known]
    assert not lost, (lost, sorted(known)[:3])


def test_after_the_end_nothing_of_the_run_sits_on_a_node(served: System) -> None:
    served.stop()
    assert until(lambda: not seats(), 15), seats()
    assert not list((served.runs / "served-keys" / "clients").iterdir())
    scratch.sweep(PREFIX)  # what was on the node that died is removed by the next seat there
    assert not list(Path(tempfile.gettempdir()).glob(f"{PREFIX}*"))


def test_a_launcher_that_is_killed_leaves_nothing_on_a_node_and_its_run_goes_on(
    served: System
) -> None:
    served.resume()
    clients = served.runs / "served-keys" / "clients"
    assert seats()
    assert served.launcher is not None
    served.launcher.kill()
    assert until(lambda: not seats(), 60), seats()
    assert until(lambda: not served.processes(), 60), served.processes()
    assert len(list(clients.iterdir())) == 1
    served.resume()
    assert say(served, "Are you there?").choices
    assert len(list(clients.iterdir())) == 1, "the killed launcher's seat is shut out"
