"""What is refused before a cluster is asked, and what an unseen Ray changes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from claw import config as settings
from claw.engine import wire
from claw.errors import UsageError

TCP = {"address": "tcp://0.0.0.0:7300", "keys": "keys"}
RAY = {"kind": "ray"}


@pytest.mark.parametrize(("values", "said"), [
    ({"cluster": RAY}, "wire.address"),
    ({"cluster": RAY, "wire": {"address": "tcp://0.0.0.0:7300"}}, "wire.keys"),
    ({"cluster": RAY | {"address": "ray://head:10001"}, "wire": TCP}, "must be a node itself"),
    ({"cluster": RAY | {"worker_resources": {"GPU": -1}}, "wire": TCP}, "from 0 on"),
    ({"cluster": RAY | {"runners": 4}, "wire": TCP, "rollout": {"host": False}}, "rollout.host"),
    ({"cluster": {"runners": 4}}, "no effect"),
])
def test_what_a_cluster_cannot_honour_is_an_error_at_start(values: dict, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        settings.parse(values)


def test_a_cluster_with_keys_and_an_address_is_taken() -> None:
    run = settings.parse({"cluster": RAY | {"worker_resources": {"CPU": 4, "GPU": 1}}, "wire": TCP})
    assert run.cluster.worker_resources == {"CPU": 4.0, "GPU": 1.0}


def test_without_ray_the_error_names_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from claw.engine.cluster.cluster import Cluster

    wire.make_keys(tmp_path / "keys")
    run = settings.parse({"cluster": RAY, "wire": TCP | {"keys": str(tmp_path / "keys")}})
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"needs Ray(.|\n)*claw-rl\[ray\]"):
        Cluster(run, wire.read_keys(tmp_path / "keys"), "run")


def test_ray_is_not_imported_unless_it_is_asked_for() -> None:
    code = ("import sys, json, claw.cli, claw.engine.launch, claw.engine.report, "
            "claw.engine.cluster.placed, claw.engine.cluster.seat\n"
            "print(json.dumps('ray' in sys.modules))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) is False


def test_the_pair_of_a_seat_is_let_in_until_its_file_is_taken_away(tmp_path: Path) -> None:
    wire.make_keys(tmp_path / "run")
    server = wire.read_keys(tmp_path / "run")
    public = wire.make_client(tmp_path / "seat", server.public)
    assert wire.read_keys(tmp_path / "seat").server == server.public
    assert not server.admit(public)
    file = wire.admit(tmp_path / "run", "seat-1", public)
    assert server.admit(public)
    file.unlink()
    assert not server.admit(public)
