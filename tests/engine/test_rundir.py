"""A run folder: made once, held by one, readable by its owner, found by name."""

import json
import signal
import stat
import subprocess
import sys
from pathlib import Path

import disks
import pytest

from claw.config import parse
from claw.engine import rundir
from claw.engine.report import roll_back
from claw.engine.rundir import RunDir, find
from claw.errors import UsageError


def a_run(folder: Path, name: str = "one") -> RunDir:
    return RunDir.create(parse({"runs": str(folder), "name": name, "plugin_name": "personal"}))


def test_a_new_folder_holds_the_resolved_settings_and_only_its_owner_may_look(tmp_path) -> None:
    run = a_run(tmp_path)
    assert stat.S_IMODE(run.path.stat().st_mode) == 0o700
    reopened, config = RunDir.open(run.path)
    assert reopened.path == run.path and config.plugin_name == "personal"


def test_a_name_is_not_used_twice(tmp_path) -> None:
    a_run(tmp_path)
    with pytest.raises(UsageError, match="exists already"):
        a_run(tmp_path)


def test_a_second_holder_is_refused_until_the_first_lets_go(tmp_path) -> None:
    run = a_run(tmp_path)
    run.hold()
    other, _ = RunDir.open(run.path)
    with pytest.raises(UsageError, match="another claw process"):
        other.hold()
    sockets = run.sockets
    run.release()
    assert not sockets.exists()
    other.hold()
    other.release()


def test_what_a_killed_launcher_left_is_swept_and_its_run_does_not_count_as_running(
    tmp_path: Path,
) -> None:
    run = a_run(tmp_path)
    run.hold()
    left = run.sockets
    run.write_json("run.json", {"addresses": {"runners": "ipc://x"}, "sockets": str(left)})
    assert run.is_held()
    run._lock.close()  # as the kernel does for a process that was killed
    assert not run.is_held()
    with pytest.raises(UsageError, match="not running"):
        roll_back(run.path, owner="default", adapter="default", to=1)
    again, _ = RunDir.open(run.path)
    again.hold()
    assert not left.exists() and "addresses" not in again.read_json("run.json")
    again.release()


def test_nothing_but_a_socket_folder_is_ever_swept(tmp_path: Path) -> None:
    run, precious = a_run(tmp_path), tmp_path / "claw-precious"
    precious.mkdir()
    run.write_json("run.json", {"sockets": str(precious)})
    run.hold()
    assert precious.exists()
    run.release()


def test_a_folder_of_another_format_is_refused_by_name(tmp_path) -> None:
    run = a_run(tmp_path)
    file = run.path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"format": 99}))
    with pytest.raises(UsageError, match="format 99"):
        RunDir.open(run.path)


def test_the_key_is_made_once_and_is_readable_by_its_owner_only(tmp_path) -> None:
    run = a_run(tmp_path)
    key = run.api_key()
    assert key.startswith("sk-claw-") and run.api_key() == key
    assert stat.S_IMODE((run.path / "api_key").stat().st_mode) == 0o600


def test_a_run_is_found_by_path_by_name_or_as_the_newest(tmp_path) -> None:
    first, second = a_run(tmp_path, "a"), a_run(tmp_path, "b")
    (second.path / "config.json").touch()
    assert find(str(first.path)) == first.path
    assert find("a", str(tmp_path)).name == "a"
    assert find("", str(tmp_path)).name == "b"
    with pytest.raises(UsageError, match="no such run"):
        find("c", str(tmp_path))




KILLED = """
import os, signal, subprocess, sys
from pathlib import Path
from claw.engine.rundir import RunDir
run = RunDir(Path(sys.argv[1]))
run.hold()
child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()",
                          f"{run.path}/specs/x.json"], pass_fds=run.lock)
print(child.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_folder_is_held_until_the_processes_of_a_killed_launcher_have_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = a_run(tmp_path)
    monkeypatch.setattr(rundir, "LEFT_S", 0.5)
    with subprocess.Popen([sys.executable, "-c", KILLED, str(run.path)], text=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as launcher:
        child = int(launcher.stdout.readline())
        assert launcher.wait(30) == -signal.SIGKILL
        with pytest.raises(UsageError, match=f"still run in this folder(.|\n)*kill -9 {child}$"):
            run.hold()
        monkeypatch.setattr(rundir, "LEFT_S", 30.0)
        launcher.stdin.close()  # the child's too: it ends
        run.hold()
    run.release()


def test_a_socket_folder_is_named_before_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever the launcher is killed, the next one knows what to sweep."""
    run, named = a_run(tmp_path), []
    made = Path.mkdir
    monkeypatch.setattr(Path, "mkdir", lambda path, *a, **k: (
        named.append(run.read_json("run.json").get("sockets")), made(path, *a, **k)))
    run.hold()
    assert named == [str(run.sockets)]
    run.release()


def test_a_folder_that_may_only_be_read_is_refused_in_words(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    words = r"cannot be written(.|\n)*found: .*(.|\n)*runs=DIR"
    with disks.read_only(run.path), pytest.raises(UsageError, match=words):
        run.hold()
    with disks.read_only(tmp_path), pytest.raises(UsageError, match="cannot be written"):
        a_run(tmp_path, "two")


def test_a_full_disk_refuses_a_new_run_in_words(tmp_path: Path) -> None:
    with disks.small(tmp_path, 1) as disk:
        (disk / "rest").write_bytes(b"0" * (1 << 20))
        with pytest.raises(UsageError, match="No space left on device"):
            a_run(disk)
