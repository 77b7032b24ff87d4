"""The cluster that a run belongs to: joining it, asking for seats, saying what it has.

Owns: Ray. Does not own: what sits in a seat (seat), how the launcher deals with it (placed).

Ray finds a node and starts a process there; nothing of a run but its settings goes through it.
Samples, tokens and weights travel on the run's own sockets.
"""

import glob
import logging
import signal
from pathlib import Path
from typing import Any

from claw.config import ClusterConfig, RunConfig
from claw.engine import wire
from claw.errors import ClawError, UsageError

log = logging.getLogger(__name__)

EVERYWHERE = ("*", "0.0.0.0", "[::]")
CALL_S = 5.0
"""for what is asked of Ray itself; what is asked of a node is looked for again later"""


class Cluster:
    """The launcher's end of it."""

    def __init__(self, config: RunConfig, keys: wire.Keys, run: str) -> None:
        """Join. UsageError: Ray is not installed, or no cluster answers. `run` is its name."""
        self.config: ClusterConfig = config.cluster
        self.dead_after_s = config.wire.dead_after_s
        self.keys, self._prefix = keys, f"placed-{run}-"
        for file in (keys.folder / wire.CLIENTS).glob(f"{glob.escape(self._prefix)}*.public"):
            file.unlink(missing_ok=True)  # of a launcher that was killed
        self.ray = _ray()
        before = signal.getsignal(signal.SIGTERM)
        try:
            self.ray.init(
                address=self.config.address or "auto", log_to_driver=False,
                configure_logging=False, logging_level=logging.ERROR, include_dashboard=None,
                _skip_env_hook=True,
            )
        except (ConnectionError, ValueError, RuntimeError, TimeoutError) as error:
            raise UsageError(
                "no Ray cluster answers",
                found=f"{self.config.address or 'none on this machine'}: {str(error)[:300]}",
                allowed="a cluster that this machine is a node of",
                do="ray start --head on one machine, ray start --address=HEAD:6379 on the others",
            ) from error
        finally:
            signal.signal(signal.SIGTERM, before)

    def leave(self) -> None:
        """End what is left in seats of this run."""
        self.ray.shutdown()

    def reached(self, address: str) -> str:
        """An address of this machine as the nodes reach it."""
        host, _, port = address.removeprefix("tcp://").rpartition(":")
        if self.config.host:
            host = self.config.host
        elif host in EVERYWHERE:
            host = self.ray.util.get_node_ip_address()
        return f"tcp://{host}:{port}"

    def seat(self, resources: dict[str, float]) -> Any:
        """Ask for a seat; it is there when its first call is answered."""
        from claw.engine.cluster.seat import Seat

        named = {k: v for k, v in resources.items() if k not in ("CPU", "GPU", "memory")}
        return self.ray.remote(Seat).options(
            num_cpus=resources.get("CPU", 0), num_gpus=resources.get("GPU", 0),
            memory=resources.get("memory"), resources=named, max_restarts=0,
        ).remote()

    def vacate(self, seat: Any) -> None:
        """End a seat and what sits in it; a node that is gone has done so."""
        try:
            self.ray.wait([seat.end.remote()], timeout=CALL_S)
            self.ray.kill(seat)
        except self.ray.exceptions.RayError as error:
            log.info("a seat is gone already: %s", type(error).__name__)

    def admit(self, name: str, public: bytes) -> Path:
        """Let the keys of a seat in; who takes the file away shuts them out."""
        return wire.admit(self.keys.folder, self._prefix + name, public)

    def no_room(self, name: str, resources: dict[str, float]) -> ClawError:
        """Say what was asked for and what there is."""
        return ClawError(
            f"the cluster has no place for {name} within {self.config.place_s:g} s "
            "(cluster.place_s)", found=f"asked for {_listed(resources)}; it has {self.has()}",
            allowed="what one node has free",
            do="start more nodes, end other work, or ask for less (cluster.worker_resources, "
               "cluster.runner_resources)",
        )

    def has(self) -> str:
        """The resources of each node that lives, and what of all is free."""
        asked = ("CPU", "GPU")
        nodes = [n for n in self.ray.nodes() if n.get("Alive")]
        shown = [
            f"{n['NodeManagerAddress']}: " + _listed({
                k: v for k, v in n["Resources"].items()
                if k in asked or not (k.startswith(("node:", "object_store")) or k == "memory")})
            for n in nodes[:8]
        ]
        more = [f"and {len(nodes) - 8} more"] if len(nodes) > 8 else []
        free = {k: v for k, v in self.ray.available_resources().items()
                if not k.startswith(("node:", "object_store")) and k != "memory"}
        return f"{len(nodes)} nodes ({'; '.join(shown + more)}), free of all: {_listed(free)}"


def _listed(resources: dict[str, float]) -> str:
    return ", ".join(f"{k} {v:g}" for k, v in sorted(resources.items())) or "nothing"


def _ray() -> Any:
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        raise UsageError(
            "cluster.kind = \"ray\" needs Ray", found=str(error), allowed="the extra `ray`",
            do="pip install 'claw-rl[ray]' here and on every node",
        ) from error
    return ray
