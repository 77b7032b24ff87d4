"""How sandboxes are opened, kept, brought back and ended, on the real engine."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from claw.sdk.sandbox import Mount, Pool, SandboxError, Spec, engine, open_sandbox, owner, reaper
from claw.sdk.sandbox.spec import BASE_IMAGE

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("leaves_nothing")]
ROOT = Path(__file__).parents[3]


def eventually(what: Callable[[], bool], within_s: float = 20.0) -> bool:
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        if what():
            return True
        time.sleep(0.05)
    return False


def exists(container_id: str) -> bool:
    return any(c["Id"] == container_id for c in engine.api().containers(all=True))


# --- flags ---------------------------------------------------------------------------------------

def test_the_engine_is_told_every_limit(needs_docker: None, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("mounted")
    tmp_path.chmod(0o755)
    spec = Spec(memory_mb=256, cpus=0.5, pids=48, mounts=(Mount(str(tmp_path), "/data"),))
    with open_sandbox(spec) as box:
        found = engine.api().inspect_container(box.id)
        host = found["HostConfig"]
        assert host["Memory"] == host["MemorySwap"] == 256 << 20
        assert (host["NanoCpus"], host["PidsLimit"]) == (500_000_000, 48)
        assert (host["Privileged"], host["CapDrop"]) == (False, ["ALL"])
        assert host["SecurityOpt"] == ["no-new-privileges"]
        assert host["LogConfig"]["Type"] == "none"
        assert host["NetworkMode"] == "none"
        assert host["AutoRemove"] is True
        assert owner.OWNER in found["Config"]["Labels"]
        assert box.read("/data/data") == b"mounted"
        assert b"Read-only" in box.run("touch /data/x", user="root").stderr


def test_a_working_directory_that_the_image_lacks_belongs_to_the_user(needs_docker: None) -> None:
    with open_sandbox(Spec(workdir="/fresh/place", user="1000:1000")) as box:
        assert box.run("touch x; pwd; stat -c %u x").stdout == b"/fresh/place\n1000\n"


def test_a_runtime_is_passed_to_the_engine(needs_docker: None) -> None:
    with open_sandbox(Spec(runtime="runc")) as box:
        assert engine.api().inspect_container(box.id)["HostConfig"]["Runtime"] == "runc"
    with pytest.raises(SandboxError, match="no-such-runtime"):
        open_sandbox(Spec(runtime="no-such-runtime"))


def test_a_missing_image_is_named_and_never_pulled(needs_docker: None) -> None:
    began = time.monotonic()
    with pytest.raises(SandboxError, match="no such image") as caught:
        open_sandbox(Spec(image="claw/none:such"))
    assert time.monotonic() - began < 5
    assert caught.value.found == "claw/none:such"
    assert "docker pull claw/none:such" in caught.value.do


def test_without_an_engine_the_error_says_how_to_get_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    engine._client.cache_clear()
    try:
        with pytest.raises(SandboxError, match="no container engine answers") as caught:
            open_sandbox()
        assert "none.sock" in caught.value.found
        assert "tools/docker.sh" in caught.value.do
    finally:
        engine._client.cache_clear()


# --- network -------------------------------------------------------------------------------------

REACH = """
import socket, sys
from concurrent.futures import ThreadPoolExecutor
def reach(where):
    host, port = where.split(":")
    try:
        socket.create_connection((host, int(port)), 2).close()
        return "reached"
    except OSError as error:
        return "failed"
print(*ThreadPoolExecutor(8).map(reach, sys.argv[1:]), sep="\\n")
"""


def test_a_sandbox_reaches_nothing_by_default(needs_docker: None) -> None:
    with open_sandbox() as box:
        assert box.run("ls /sys/class/net").stdout == b"lo\n"


def test_the_fence_lets_out_but_not_to_this_machine_or_private_addresses(
    needs_docker: None,
) -> None:
    with socket.create_server(("0.0.0.0", 0)) as server, open_sandbox(
        Spec(network="fenced")) as box, open_sandbox(Spec(network="fenced")) as other:
        port = server.getsockname()[1]
        gateway = box.run("ip route | awk '/default/ {print $3}'").text.strip()
        here = socket.gethostbyname(socket.gethostname())
        peer = other.run("hostname -I").text.strip()
        other.run("(python3 -m http.server 8123 >/dev/null 2>&1 &)")
        assert eventually(lambda: other.run(["python3", "-c", REACH, "127.0.0.1:8123"]).stdout
                          == b"reached\n")
        socket.create_connection((gateway, port), 3).close()  # it does listen there
        words = [f"{gateway}:{port}", f"{here}:{port}", f"{peer}:8123", "10.0.0.1:80",
                 "169.254.169.254:80", "192.168.0.1:80"]
        ran = box.run(["python3", "-c", REACH, *words], timeout_s=60)
        assert ran.stdout.split() == [b"failed"] * len(words)


def test_the_fence_reaches_the_outside(needs_docker: None) -> None:
    outside = ("deb.debian.org", 80)
    try:
        socket.create_connection(outside, 5).close()
    except OSError as error:
        pytest.skip(f"this machine itself does not reach {outside[0]}: {error}")
    with open_sandbox(Spec(network="fenced")) as box:
        ran = box.run(["python3", "-c", REACH, f"{outside[0]}:{outside[1]}"], timeout_s=30)
        assert ran.stdout == b"reached\n"


# --- ends ----------------------------------------------------------------------------------------

def test_closing_twice_is_fine_and_nothing_is_left(needs_docker: None) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(2):
        box = open_sandbox()
        box.run("setsid sleep 400 &")
        box.close()
        box.close()
        assert not exists(box.id)
        with pytest.raises(SandboxError, match="closed"):
            box.run("true")
    assert len(os.listdir("/proc/self/fd")) <= before + 2  # idle connections to the engine


def test_a_lost_sandbox_says_so_and_is_closed(needs_docker: None) -> None:
    box = open_sandbox()
    engine.api().kill(box.id)
    with pytest.raises(SandboxError, match="the sandbox is lost"):
        box.run("true")
    with pytest.raises(SandboxError, match="closed"):
        box.run("true")
    assert not exists(box.id)


def test_a_sandbox_ends_with_its_lifetime(needs_docker: None) -> None:
    box = open_sandbox(Spec(lifetime_s=1))
    assert eventually(lambda: not exists(box.id))
    box.close()


def test_reset_brings_back_the_files_it_was_opened_with(needs_docker: None) -> None:
    with open_sandbox() as box:
        box.write("mine", b"x")
        box.run("setsid sleep 500 & rm -rf /home/agent/.bashrc")
        box.reset()
        ran = box.run("ls -A; ls /home/agent/.bashrc; pgrep -c sleep")
        assert ran.stdout == b"/home/agent/.bashrc\n0\n"


def test_a_snapshot_keeps_files_and_goes_with_its_process(needs_docker: None) -> None:
    with open_sandbox() as box:
        box.write("/work/kept", b"kept")
        image = box.snapshot()
    with open_sandbox(Spec(image=image)) as again:
        assert again.read("/work/kept") == b"kept"
    labels = engine.api().inspect_image(image)["Config"]["Labels"]
    assert labels[owner.OWNER] == ""
    assert labels[owner.SNAPSHOT] == owner.me()
    reaper._snapshots(lambda found, key: found.get(key) == owner.me())
    assert image not in {i["Id"] for i in engine.api().images()}


def test_a_named_snapshot_stays_until_it_is_removed(needs_docker: None) -> None:
    name = f"claw-test/kept:{os.getpid()}"
    with open_sandbox() as box:
        box.write("/work/kept", b"kept")
        assert box.snapshot(name) == name
    try:
        reaper._snapshots(lambda found, key: found.get(key) == owner.me())
        with open_sandbox(Spec(image=name)) as again:
            assert again.read("/work/kept") == b"kept"
    finally:
        engine.api().remove_image(name, force=True)


# --- crashes -------------------------------------------------------------------------------------

HOLDS = """
import json, sys, time
from claw.sdk.sandbox import Spec, engine, open_sandbox
boxes = [open_sandbox(), open_sandbox(), open_sandbox(Spec(network="fenced"))]
boxes[0].run("(setsid sleep 600 &) ; touch x")
image = boxes[0].snapshot()
net = next(iter(engine.api().inspect_container(boxes[2].id)["NetworkSettings"]["Networks"]))
print(json.dumps({"boxes": [b.id for b in boxes], "image": image, "net": net}))
sys.stdout.flush()
boxes[1].run("sleep 600", timeout_s=600)
"""


def test_after_a_sigkill_of_claw_a_restart_finds_nothing_left(needs_docker: None) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLDS], stdout=subprocess.PIPE, text=True)
    assert holder.stdout
    held = json.loads(holder.stdout.readline())
    assert all(exists(b) for b in held["boxes"])
    holder.send_signal(signal.SIGKILL)
    # the leash alone takes the containers, before anybody reaps and while it is a zombie
    assert eventually(lambda: not any(exists(b) for b in held["boxes"]), 10)
    assert held["net"] in {n["Name"] for n in engine.api().networks()}
    reaper.reap()
    holder.wait()
    holder.stdout.close()
    assert held["net"] not in {n["Name"] for n in engine.api().networks()}
    assert held["image"] not in {i["Id"] for i in engine.api().images()}


def labelled(name: str, until: float) -> str:
    api = engine.api()
    made = api.create_container(BASE_IMAGE, ["sleep", "600"], labels={
        owner.OWNER: name, owner.UNTIL: str(int(until))})["Id"]
    api.start(made)
    return str(made)


def test_the_reaper_takes_what_the_dead_left_and_nothing_else(needs_docker: None) -> None:
    boot, namespace, pid, start = owner.me().split(" ")
    soon, past = time.time() + 3600, time.time() - 3600
    dead = subprocess.Popen(["true"])
    time.sleep(0.2)  # a zombie now: its start time can still be read
    made = {
        "zombie": labelled(f"{boot} {namespace} {dead.pid} 12345", soon),
        "reused": labelled(f"{boot} {namespace} {pid} {int(start) + 1}", soon),
        "mine": labelled(owner.me(), soon),
        "elsewhere": labelled(f"other-boot {namespace} 1 1", soon),
        "elsewhere, over": labelled(f"other-boot {namespace} 1 1", past),
        "another namespace": labelled(f"{boot} pid:[1] 1 1", soon),
        "of nobody": labelled("", past),
    }
    try:
        gone = reaper.reap()
        assert {n for n, i in made.items() if i in gone} == {"zombie", "reused", "elsewhere, over"}
        assert {n for n, i in made.items() if exists(i)} == set(made) - {
            "zombie", "reused", "elsewhere, over"}
    finally:
        dead.wait()
        for found in made.values():
            if exists(found):
                engine.api().remove_container(found, force=True)


def test_a_zombie_is_no_living_owner() -> None:
    child = subprocess.Popen(["true"])
    started = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[19]
    assert eventually(lambda: ") Z" in Path(f"/proc/{child.pid}/stat").read_text())
    boot, namespace, *_ = owner.me().split(" ")
    assert owner.is_abandoned({owner.OWNER: f"{boot} {namespace} {child.pid} {started}"})
    child.wait()
    assert not owner.is_abandoned({owner.OWNER: owner.me()})


# --- many ----------------------------------------------------------------------------------------

def test_a_pool_bounds_who_is_in_and_hands_each_out_once(needs_docker: None) -> None:
    seen, most, inside, lock = [], 0, 0, threading.Lock()
    with Pool(limit=3, warm=1) as pool:
        def one(number: int) -> bytes:
            nonlocal most, inside
            with pool.take() as box:
                with lock:
                    seen.append(box.id)
                    inside += 1
                    most = max(most, inside)
                out = box.run(f"ls -A; echo {number} | tee mine").stdout
                with lock:
                    inside -= 1
            return out

        with ThreadPoolExecutor(6) as threads:
            assert list(threads.map(one, range(6))) == [f"{i}\n".encode() for i in range(6)]
        assert len(set(seen)) == 6
        assert most <= 3
        with pool.take(), pool.take(), pool.take(), pytest.raises(
                SandboxError, match="no sandbox came free"), pool.take(wait_s=0.2):
            pass
    with pytest.raises(SandboxError, match="closed"), pool.take():
        pass


def test_a_warm_sandbox_of_another_kind_makes_room(needs_docker: None) -> None:
    with Pool(limit=1, warm=1) as pool:
        pool.prepare(Spec())
        with pool.take(Spec(memory_mb=256), wait_s=10) as other:
            assert other.run("echo ok").stdout == b"ok\n"


def test_a_pool_passes_on_why_nothing_opens_and_stays_usable(needs_docker: None) -> None:
    with Pool(limit=1, warm=0) as pool:
        for _ in range(2):
            with pytest.raises(SandboxError, match="no such image"), pool.take(
                    Spec(image="claw/none:such")):
                pass
        with pool.take() as box:
            assert box.run("echo ok").stdout == b"ok\n"


@pytest.mark.slow
def test_thirty_two_sandboxes_run_at_once(needs_docker: None) -> None:
    with ThreadPoolExecutor(32) as threads:
        boxes = list(threads.map(lambda _: open_sandbox(Spec(memory_mb=128)), range(32)))
        try:
            outs = list(threads.map(lambda b: b.run("sleep 1; hostname; echo ok").stdout, boxes))
            assert outs == [b"sandbox\nok\n"] * 32
        finally:
            list(threads.map(lambda b: b.close(), boxes))


# --- the script ----------------------------------------------------------------------------------

def test_the_script_leaves_a_running_engine_alone(needs_docker: None) -> None:
    before = engine.api().info()["SystemTime"], engine.api().inspect_image(BASE_IMAGE)["Id"]
    daemons = subprocess.run(["pgrep", "-x", "dockerd"], capture_output=True, check=False).stdout
    done = subprocess.run(["bash", "tools/docker.sh"], cwd=ROOT, capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stderr
    assert "ready" in done.stderr
    assert subprocess.run(["pgrep", "-x", "dockerd"], capture_output=True,
                          check=False).stdout == daemons
    assert engine.api().inspect_image(BASE_IMAGE)["Id"] == before[1]


def test_the_script_says_what_to_do_where_it_may_not_install(tmp_path: Path) -> None:
    done = subprocess.run(
        ["bash", "tools/docker.sh", "--image-only"], cwd=ROOT, capture_output=True, text=True,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path),
             "DOCKER_HOST": f"unix://{tmp_path}/none.sock"}, check=False)
    assert done.returncode == 1
    assert "no Docker engine answers" in done.stderr
    assert "docs.docker.com" in done.stderr
