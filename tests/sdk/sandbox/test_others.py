"""Sandboxes that are not the usual ones: images without Python, bubblewrap, other sockets."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from claw.sdk.sandbox import Sandbox, SandboxError, Spec, container, engine, open_sandbox

needs_bwrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is missing")


# --- an image without Python ---------------------------------------------------------------------

@pytest.fixture(scope="module")
def bare(image_without_python: str) -> Iterator[Sandbox]:
    with open_sandbox(Spec(image=image_without_python, pids=64, memory_mb=128)) as opened:
        yield opened


@pytest.mark.docker
def test_an_image_without_python_runs_the_same_commands(bare: Sandbox) -> None:
    assert bare.run("command -v python3").exit_code == 1
    ran = bare.run("id -u; pwd; echo $X; echo wrong >&2; exit 3", env={"X": "y"}, cwd="/usr")
    assert (ran.stdout, ran.stderr, ran.exit_code) == (b"1000\n/usr\ny\n", b"wrong\n", 3)
    assert bare.run("grep CapEff /proc/self/status", user="0").text.split()[1] == "0" * 16
    data = bytes(range(256)) * 9000
    bare.write("/tmp/x", data)
    assert bare.read("/tmp/x") == data
    bare.put({"a": b"1"})
    assert bare.read("a") == b"1"
    assert bare.run("exec <&-; echo done", stdin=data).stdout == b"done\n"


@pytest.mark.docker
def test_an_image_without_python_keeps_deadlines_and_bounds(bare: Sandbox) -> None:
    began = time.monotonic()
    ran = bare.run("trap '' TERM; (setsid sleep 701 >/dev/null 2>&1 &); sleep 702", timeout_s=0.5)
    assert (ran.exit_code, ran.timed_out) == (None, True)
    assert time.monotonic() - began < 15
    assert bare.run("pgrep -c 'sleep'").stdout == b"1\n"  # the leash's own
    ran = bare.run("cat /dev/zero", timeout_s=1, max_output=100)
    assert ran.timed_out
    assert len(ran.stdout) < 200
    ran = bare.run("x=$(head -c 200000000 /dev/zero | tr '\\0' x); echo ${#x}")
    assert ran.out_of_memory
    assert not bare.run("kill -9 $$").out_of_memory
    bare.run("setsid sleep 703 >/dev/null 2>&1 &")
    bare.sweep()
    assert bare.run("pgrep -fc 'sleep 703'").stdout == b"0\n"


@pytest.mark.docker
def test_an_image_without_python_reaps_and_survives_the_kill_of_everything(bare: Sandbox) -> None:
    for user in ("1000", "0:0"):
        bare.run("kill -9 -1", user=user)
    for _ in range(3):
        bare.run("for i in $(seq 20); do (setsid true &); done; sleep 0.2")
    assert bare.run("ps -eo stat | grep -c Z").stdout == b"0\n"


@pytest.mark.docker
def test_the_leash_holds_without_python(image_without_python: str) -> None:
    code = ("import sys, time; from claw.sdk.sandbox import *; "
            f"box = open_sandbox(Spec(image={image_without_python!r})); print(box.id, flush=True); "
            "time.sleep(600)")
    holder = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert holder.stdout
    box_id = holder.stdout.readline().strip()
    assert box_id in {c["Id"] for c in engine.api().containers()}
    holder.kill()
    end = time.monotonic() + 15
    while box_id in {c["Id"] for c in engine.api().containers(all=True)}:
        assert time.monotonic() < end
        time.sleep(0.1)
    holder.wait()
    holder.stdout.close()


# --- bubblewrap ----------------------------------------------------------------------------------

@pytest.fixture
def jail() -> Iterator[Sandbox]:
    with open_sandbox(Spec(engine="bwrap", pids=64)) as opened:
        yield opened


@needs_bwrap
def test_bubblewrap_runs_the_same_commands(jail: Sandbox) -> None:
    ran = jail.run("id -u; pwd; ls /home /root /etc/passwd 2>&1 | grep -c 'No such'; ls /sys/class")
    assert ran.stdout == b"1000\n/work\n3\n"
    jail.write("deep/x", b"1")
    assert jail.read("deep/x") == b"1"
    assert jail.run("ls -A").stdout == b"deep\n"
    jail.reset()
    assert jail.run("ls -A; ip link 2>/dev/null | grep -c mtu").stdout.split() in ([b"1"], [b"0"])
    assert jail.run("sleep 300", timeout_s=0.3).timed_out
    assert jail.run("echo x >/usr/x").exit_code == 1


@needs_bwrap
def test_bubblewrap_says_that_a_command_killed_its_keeper_and_goes_on(jail: Sandbox) -> None:
    ran = jail.run("kill -9 -1; sleep 1")
    assert (ran.exit_code, ran.lost) == (None, True)
    assert jail.run("echo here").stdout == b"here\n"


@needs_bwrap
def test_a_fork_bomb_in_bubblewrap_ends_with_it() -> None:
    with open_sandbox(Spec(engine="bwrap", pids=64)) as jail:
        jail.run("bomb() { bomb | bomb & wait; }; bomb", timeout_s=1)
        assert jail.run("echo here").stdout == b"here\n"
        pid = int(jail.id)
    assert not Path(f"/proc/{pid}").exists()


@needs_bwrap
@pytest.mark.parametrize("words", [
    {"image": "debian:12"}, {"network": "fenced"}, {"capabilities": ("CHOWN",)}, {"cpus": 2.0},
    {"runtime": "runsc"}, {"user": "agent"},
])
def test_bubblewrap_refuses_what_it_cannot_honour(words: dict[str, object]) -> None:
    with pytest.raises(SandboxError, match=next(iter(words))):
        open_sandbox(Spec(engine="bwrap", **words))  # type: ignore[arg-type]


# --- what is asked -------------------------------------------------------------------------------

@pytest.mark.parametrize(("words", "said"), [
    ({"network": "host"}, "unknown network"), ({"engine": "lxc"}, "unknown engine"),
    ({"memory_mb": 1}, "memory_mb"), ({"cpus": float("nan")}, "cpus"), ({"pids": 1}, "pids"),
    ({"tmpfs_mb": 600}, "half of memory_mb"), ({"workdir": "work"}, "absolute"),
    ({"capabilities": ("ALL",)}, "capability"), ({"lifetime_s": 0}, "lifetime_s"),
])
def test_a_spec_that_no_engine_can_honour_is_refused(words: dict[str, object], said: str) -> None:
    with pytest.raises(SandboxError, match=said):
        Spec(**words)  # type: ignore[arg-type]


def test_sockets_are_asked_in_the_documented_order(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
) -> None:
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "podman").mkdir()
    (tmp_path / "podman/podman.sock").touch()
    (tmp_path / "docker.sock").touch()
    found = [a for a in engine.addresses() if str(tmp_path) in a]
    assert found == [f"unix://{tmp_path}/docker.sock", f"unix://{tmp_path}/podman/podman.sock"]
    monkeypatch.setenv("DOCKER_HOST", "tcp://elsewhere:2375")
    assert list(engine.addresses()) == ["tcp://elsewhere:2375"]


class Leaving:
    """An engine's api whose container is going by itself; podman says 500 then."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)

    def remove_container(self, container_id: str, **_: object) -> None:
        import docker
        import requests

        response = requests.Response()
        response.status_code = self.statuses.pop(0)
        kind = docker.errors.NotFound if response.status_code == 404 else docker.errors.APIError
        raise kind("no", response=response, explanation="container state improper: stopped")


def test_a_container_that_goes_by_itself_is_asked_for_until_it_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    api = Leaving(500, 409, 404)
    monkeypatch.setattr(engine, "api", lambda: api)
    container.remove("c0ffee")
    assert not api.statuses


def test_a_container_that_stays_is_told_with_the_engines_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine, "api", lambda: Leaving(500))
    monkeypatch.setattr(container, "REMOVE_S", 0.1)
    with pytest.raises(SandboxError, match=r"not removed(?s:.)*state improper"):
        container.remove("c0ffee")
    monkeypatch.setattr(engine, "api", lambda: Leaving(403))
    with pytest.raises(SandboxError, match="removing a sandbox failed"):
        container.remove("c0ffee")


def test_importing_sandboxes_loads_no_engine() -> None:
    code = "import sys, claw.sdk.sandbox; print({'docker', 'requests'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                          env=dict(os.environ))
    assert done.stdout.strip() == "set()"
