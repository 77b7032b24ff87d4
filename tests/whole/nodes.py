"""A Ray cluster of several nodes on this machine, in one process: `python nodes.py CPUS...`.

Prints the head's address, then `ready`; obeys `remove ID` (a node that dies, by its Ray id) and
ends with its stdin. The head has no room for anything, so what is placed goes to the other nodes.
"""

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

STORE = 80 * 1024 * 1024


def main(cpus: list[int]) -> None:
    # Ray's sockets lie below; a path to one has 107 characters at most
    with tempfile.TemporaryDirectory(prefix="cr-", dir="/tmp") as folder:
        os.environ["RAY_TMPDIR"] = folder  # read at import
        (Path(folder) / "ray").mkdir()
        from ray.cluster_utils import Cluster

        cluster = Cluster(initialize_head=True, head_node_args={
            "num_cpus": 0, "object_store_memory": STORE, "include_dashboard": False,
        })
        try:
            nodes = [cluster.add_node(num_cpus=n, object_store_memory=STORE) for n in cpus]
            print(cluster.address, flush=True)
            print("ready", flush=True)
            for line in sys.stdin:
                _obey(cluster, {node.node_id: node for node in nodes}, *line.split())
        finally:
            cluster.shutdown()


def _obey(cluster: Any, nodes: dict[str, Any], word: str, node: str) -> None:
    assert word == "remove", word
    cluster.remove_node(nodes[node], allow_graceful=False)
    print("removed", flush=True)


if __name__ == "__main__":
    main([int(word) for word in sys.argv[1:]])
