"""Start, watch and stop the processes of a run.

    launcher ─┬─ actor      journal, sessions, judging
              ├─ worker-0   samples tokens
              ├─ trainer    steps and versions
              └─ runner     plugin code: HTTP app, environments

A process that dies is started again, and one that hangs is killed first; the journal and the
checkpoints hold all it needs. One that keeps dying ends the run with the last lines of its log. A
child ends when its launcher is gone.
"""

import functools
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from claw import config as settings
from claw.config import RunConfig
from claw.engine import cipher, control, faults, process, pulse, wire
from claw.engine.actor.store import NAME as JOURNAL
from claw.engine.rundir import RunDir, private
from claw.errors import ClawError, UsageError

log = logging.getLogger(__name__)

STOP_GRACE_S = 30.0
"""after SIGTERM; then SIGKILL"""
KILL_S = 5.0
"""after SIGKILL; a process that waits for a disk or a device ends later, and is waited for then"""
MAX_DEATHS = 5
"""deaths of one process within DEATH_WINDOW_S that end the run"""
DEATH_WINDOW_S = 120.0


@dataclass
class Child:
    """One process of the run."""

    name: str
    module: str
    spec: Path
    log: Path
    lock: tuple[int, ...] = ()
    """holds the run folder for as long as the process lives"""
    env: dict[str, str] = field(default_factory=dict)
    umask: int = -1
    """-1 leaves it"""
    popen: subprocess.Popen[bytes] | None = None
    deaths: list[float] = field(default_factory=list)
    is_done: bool = False
    """ended by itself with exit code 0: not started again"""
    ear: pulse.Ear | None = None
    is_killed: bool = False
    """for hanging; its end is awaited"""

    @faults.around("launcher.start")
    def start(self) -> None:
        self.close()
        self.ear, self.is_killed = pulse.Ear(), False
        try:
            with open(self.log, "ab", opener=private) as out:
                self.popen = subprocess.Popen(
                    [sys.executable, "-m", self.module, "--spec", str(self.spec)],
                    stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                    env=self.env | process.ENVIRONMENT | {pulse.PIPE: str(self.ear.pipe)},
                    umask=self.umask,
                    start_new_session=True,  # Ctrl-C reaches the launcher only
                    pass_fds=(*self.lock, self.ear.pipe),
                )
        finally:
            self.ear.started()

    def close(self) -> None:
        """Stop listening."""
        if self.ear is not None:
            self.ear.close()
        self.ear = None

    def kill_if_hung(self, dead_after_s: float) -> None:
        """End the process, and what it started, if it hangs; `has_died` says when it is over."""
        if self.popen is None or self.ear is None or self.is_killed:
            return
        if self.popen.poll() is None and (why := self.ear.trouble(self.popen.pid, dead_after_s)):
            log.warning("%s hangs: %s; it is killed", self.name, why)
            self.is_killed = True
            os.killpg(self.popen.pid, signal.SIGKILL)
            try:
                self.popen.wait(KILL_S)
            except subprocess.TimeoutExpired:
                log.error("%s does not end: pid %d waits for a disk or a device", self.name,
                          self.popen.pid)

    def has_died(self) -> bool:
        return not self.is_done and self.popen is not None and self.popen.poll() is not None

    def tail(self, lines: int = 15) -> str:
        text = self.log.read_bytes()[-8000:].decode("utf-8", "replace")
        return "\n".join(text.splitlines()[-lines:])


class Launcher:
    """The processes of one run folder."""

    def __init__(
        self, config: RunConfig, run: RunDir, model_dir: Path, *, trains: bool = True,
        resume: bool = False, trace_hooks: bool = False, hosts: bool = True,
    ) -> None:
        """`hosts`: whether a process of the run hosts the plugin (an evaluation does so itself)."""
        self.config, self.run, self.model_dir = config, run, model_dir
        self.trains, self.resume, self.trace_hooks = trains, resume, trace_hooks
        self.hosts = hosts
        self.keys = wire.keys_of(config.wire.keys)
        _check_journal(run.path / JOURNAL, config.journal.key_file)
        self.key = run.api_key(_given_key(config))
        self.children: dict[str, Child] = {}
        self._stopping = self._serves = False
        self.cluster: Any = None
        """where processes are placed; None: all of them are here"""
        self._noted: dict[str, dict[str, Any]] = {}

    # --- start -------------------------------------------------------------------------------

    def start(self) -> None:
        """Write every process's spec and start it."""
        self._addresses = {
            name: self._address(name, i)
            for i, name in enumerate(("workers", "runners", "trainer", "versions", "weights"))
        }
        if self.config.cluster.kind == "ray":
            from claw.engine.cluster.cluster import Cluster  # Ray is an extra

            assert self.keys is not None, "a cluster without keys is refused by the settings"
            self.cluster = Cluster(self.config, self.keys, self.run.path.name)
        for name, module, spec in self._specs():
            child = self._child(name, module, spec)
            self.children[name] = child
            child.start()
        faults.at("launcher.addresses.before")
        self.run.write_json("run.json", {
            "pid": os.getpid(), "addresses": self._addresses,
            "sockets": str(self.run.sockets), "started": time.time(),
            "processes": self._pids(), "placed": self._places_of(),
        })
        faults.at("launcher.addresses.after")

    def _child(self, name: str, module: str, spec: dict[str, Any]) -> Child:
        log_file = self.run.path / "logs" / f"{name}.log"
        kind = name.partition("-")[0]
        if self.cluster is not None and kind in ("worker", "runner")[:1 + self._places]:
            return self._placed(name, module, spec, log_file)
        file = self.run.write_json(f"specs/{name}.json", spec)
        # what the engine writes is its owner's; a plugin's files may be for a sandbox's users
        return Child(name, module, file, log_file, self.run.lock, environment(self.config, name),
                     -1 if name == "runner" else 0o077)

    def _placed(self, name: str, module: str, spec: dict[str, Any], log_file: Path) -> Child:
        from claw.engine.cluster.placed import PlacedChild

        for link in {"actor", "versions", "weights"} & set(spec):
            spec[link] = self.cluster.reached(spec[link])
        spec.pop("api_key_file", None)  # of an app, which is not placed
        file = self.run.write_json(f"specs/{name}.json", spec)
        cluster = self.config.cluster
        is_worker = name.startswith("worker")
        return PlacedChild(
            name, module, file, log_file, cluster=self.cluster,
            resources=cluster.worker_resources if is_worker else cluster.runner_resources,
            ready=self._ready_file if name == "runner" else None,
        )

    @functools.cached_property
    def _places(self) -> bool:
        """Whether runners go to the nodes: people find an app where the launcher is."""
        from claw.sdk import registry

        return self.config.cluster.runners > 0 and not registry.load(
            self.config.plugin_name).has("claw_app")

    def _pids(self) -> dict[str, int]:
        """Of the processes on this machine."""
        here = {n: c for n, c in self.children.items() if isinstance(c.popen, subprocess.Popen)}
        return {n: c.popen.pid for n, c in here.items() if c.popen}

    def _specs(self) -> list[tuple[str, str, dict[str, Any]]]:
        a, run_dir = self._addresses, str(self.run.path)
        values = settings.resolved(self.config)
        started = {"config": values, "run_dir": run_dir, "launcher": os.getpid()}
        common = started | {"model_dir": str(self.model_dir)}
        sockets = {n: a[n] for n in ("workers", "runners", "trainer")}
        specs: list[tuple[str, str, dict[str, Any]]] = [
            ("actor", "claw.engine.actor", common | {"sockets": sockets, "resume": self.resume}),
        ]
        for i in range(self.config.worker.count):
            name = f"worker-{i}"
            specs.append((name, "claw.engine.worker", common | {
                "actor": a["workers"], "versions": a["versions"], "weights": a["weights"],
                "name": name,
            }))
        if self.trains:
            module = "claw.engine.trainer" + (".group" if self.config.train.ranks > 1 else "")
            specs.append(("trainer", module, common | {
                "actor": a["trainer"], "versions": a["versions"], "weights": a["weights"],
                "resume": self.resume,
            }))
        for name in self._runners():
            specs.append((name, "claw.engine.runner", started | {
                "actor": a["runners"],
                "api_key_file": str(self.run.path / "api_key"),
                "ready": str(self._ready_file) if name == "runner" else "",
                "trace_hooks": self.trace_hooks,
            }))
        return specs

    def _runners(self) -> list[str]:
        if not self.hosts:
            return []
        count = self.config.cluster.runners if self.cluster is not None and self._places else 1
        return ["runner", *(f"runner-{i}" for i in range(1, count))]

    @property
    def runners(self) -> str:
        """The address at which the actor hears runners."""
        return self._addresses["runners"]

    def _address(self, name: str, index: int) -> str:
        base = self.config.wire.address
        if not base:
            return f"ipc://{self.run.sockets}/{name}"
        wire.check_address(base, self.keys)
        host, _, port = base.removeprefix("tcp://").rpartition(":")
        return f"tcp://{host}:{int(port) + index}"

    @property
    def _ready_file(self) -> Path:
        return self.run.path / "specs" / "runner.ready"

    # --- ready -------------------------------------------------------------------------------

    def wait_ready(self, timeout_s: float = 300.0) -> str:
        """Wait until a request would be answered; return the app's address ("" without one)."""
        timeout_s = max(timeout_s, self._engine_start_s)
        until = time.monotonic() + timeout_s
        while time.monotonic() < until:
            self.tend()
            if self._has_worker():
                return self._app_address(until) if self.hosts else ""
            time.sleep(0.2)
        raise self._not_ready("no rollout worker came up", timeout_s, "worker-0")

    def _has_worker(self) -> bool:
        try:
            return bool(self.status(timeout_s=2.0).get("workers"))
        except ClawError:
            return False

    def _app_address(self, until: float) -> str:
        while time.monotonic() < until:
            self.tend()
            if self._ready_file.exists():
                address = str(json.loads(self._ready_file.read_text())["address"])
                self._serves = bool(address)
                return address
            time.sleep(0.1)
        raise self._not_ready("the plugin's process did not come up", 0, "runner")

    def _not_ready(self, what: str, timeout_s: float, name: str) -> ClawError:
        return ClawError(what, found=f"after {timeout_s:g} s; the end of its log:\n"
                         + self.children[name].tail(), do=f"see {self.children[name].log}")

    @property
    def _engine_start_s(self) -> float:
        """How long a worker may take that hosts an engine: such a start is a matter of minutes."""
        return self.config.sglang.start_s if self.config.worker.kind == "sglang" else 0.0

    def status(self, timeout_s: float = 10.0) -> dict[str, Any]:
        """Ask the actor how the run is."""
        return control.ask(self.runners, "status", timeout_s=timeout_s, keys=self.keys)

    # --- watch -------------------------------------------------------------------------------

    def tend(self) -> None:
        """Kill what hangs, start again what died; give up on what keeps dying."""
        for child in self.children.values():
            if not self._stopping:
                child.kill_if_hung(self.config.wire.dead_after_s)
            if not self._stopping and child.has_died():
                try:
                    self._revive(child)
                except OSError as error:  # no room for its files: the others go on meanwhile
                    child.deaths.pop()
                    log.error("%s cannot be started: %s; again when there is room", child.name,
                              error)
        self._note_places()

    @faults.around("launcher.restart")
    def _revive(self, child: Child) -> None:
        assert child.popen is not None
        code = child.popen.returncode
        if code == 0 and self._may_end(child):
            child.is_done = True
            return
        now = time.monotonic()
        window_s = DEATH_WINDOW_S + MAX_DEATHS * self._engine_start_s
        child.deaths = [t for t in child.deaths if now - t < window_s] + [now]
        if len(child.deaths) >= MAX_DEATHS:
            raise ClawError(
                f"{child.name} keeps dying",
                found=f"{len(child.deaths)} times, last with exit code {code}:\n{child.tail()}",
                do=f"see {child.log}; continue with --resume {self.run.path}",
            )
        log.warning("%s ended with exit code %s; starting it again", child.name, code)
        self._mark_resume(child)
        self._keep_port(child)
        child.start()
        about = self.run.read_json("run.json")
        self.run.write_json("run.json", about | {"processes": self._pids()})

    def _note_places(self) -> None:
        """Say in the run folder where placed processes are, whenever that changes."""
        if self.cluster is not None and (places := self._places_of()) != self._noted:
            self._noted = places
            self.run.write_json("run.json", self.run.read_json("run.json") | {"placed": places})

    def _places_of(self) -> dict[str, dict[str, Any]]:
        placed = {n: c.popen for n, c in self.children.items()
                  if c.popen is not None and not isinstance(c.popen, subprocess.Popen)}
        return {n: {"node": p.node, "host": p.host, "pid": p.pid} for n, p in placed.items()}

    def _may_end(self, child: Child) -> bool:
        """A runner without tasks left and a trainer after its last step end by themselves."""
        is_last_step = child.name == "trainer" and self.config.train.max_steps > 0
        return child.name.startswith("runner") or is_last_step

    def _mark_resume(self, child: Child) -> None:
        """A restarted actor or trainer continues, whatever the first start was."""
        spec = json.loads(child.spec.read_text())
        if "resume" in spec and not spec["resume"]:
            self.run.write_json(f"specs/{child.name}.json", spec | {"resume": True})

    def _keep_port(self, child: Child) -> None:
        """A restarted runner listens where clients know it, also when the port was any free one."""
        if child.name != "runner" or not self._ready_file.exists():
            return
        address = str(json.loads(self._ready_file.read_text())["address"])
        if not address:
            return
        spec = json.loads(child.spec.read_text())
        spec["config"]["serve"]["port"] = int(address.rpartition(":")[2])
        self.run.write_json("specs/runner.json", spec)

    def watch(self, each: Callable[[], None], interval_s: float = 0.5) -> None:
        """Tend the processes until nothing is left to do; where people are served that is never."""
        while not self._is_over():
            self.tend()
            each()
            time.sleep(interval_s)

    def _is_over(self) -> bool:
        """Whether the runner has no task left, or tasks were played for a trainer that is done."""
        if not self.hosts:
            return False
        trainer = self.children.get("trainer")
        is_trained = trainer is not None and trainer.is_done
        are_done = all(self.children[name].is_done for name in self._runners())
        return are_done or (is_trained and not self._serves)

    # --- stop --------------------------------------------------------------------------------

    @faults.around("launcher.stop")
    def stop(self) -> None:
        """Stop every process: politely, then for good. Runner first, actor last."""
        self._stopping = True
        # the specs' order backwards: the actor, which the others report to, is the last
        for child in reversed(list(self.children.values())):
            self._signal(child, signal.SIGTERM)
            _wait(child, STOP_GRACE_S)
            child.close()
        self._leave()
        self._ready_file.unlink(missing_ok=True)

    def _leave(self) -> None:
        if self.cluster is not None:
            self.cluster.leave()
        self.cluster = None

    def kill(self) -> None:
        """Kill every process at once (a second Ctrl-C)."""
        self._stopping = True
        for child in self.children.values():
            self._signal(child, signal.SIGKILL)
            _wait(child, KILL_S)
            child.close()
        self._leave()

    def _signal(self, child: Child, number: int) -> None:
        if child.popen is not None and child.popen.poll() is None:
            child.popen.send_signal(number)


def environment(config: RunConfig, name: str) -> dict[str, str]:
    """Return the environment of a process: a key is in that of whoever uses it, and no other's.

    The launcher has put the endpoint's key into a file; the actor asks an outside judge.
    """
    judge = config.judge.api_key_env
    kept_back = {config.serve.api_key_env, *([] if name == "actor" else [judge])}
    return {k: v for k, v in os.environ.items() if k not in kept_back}


def _check_journal(path: Path, key_file: str) -> None:
    """UsageError: the actor could not open the journal with the key that the settings name."""
    cipher.check(key_file)
    if path.exists():
        cipher.connect(path, key_file, read_only=True).close()


def _wait(child: Child, seconds: float) -> None:
    if child.popen is None:
        return
    try:
        child.popen.wait(seconds)
    except subprocess.TimeoutExpired:
        child.popen.kill()
        child.popen.wait(10)


def _given_key(config: RunConfig) -> str:
    name = config.serve.api_key_env
    if name and not os.environ.get(name):
        raise UsageError("the key's environment variable is empty", found=name,
                         do=f"export {name}=..., or leave serve.api_key_env empty")
    if config.serve.is_public and not name:
        raise UsageError(
            "a public address needs a key of your own", found=f"serve.host = {config.serve.host}",
            allowed="127.0.0.1, or a key", do="set serve.api_key_env to a variable with the key",
        )
    return os.environ.get(name, "") if name else ""
