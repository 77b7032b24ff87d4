"""Folders of processes that were killed go when the next one comes; those of living ones stay."""

import subprocess
import sys
import tempfile

import pytest

from claw.engine.scratch import LOCK, Scratch

HOLD = ("import sys, time; from claw.engine.scratch import Scratch; "
        "print(Scratch('claw-x-').path, flush=True); time.sleep(60)")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))


def test_what_a_killed_process_left_is_swept_and_a_living_one_keeps_its_own(tmp_path):
    held = [subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True)
            for _ in range(2)]
    try:
        killed, living = (p.stdout.readline().strip() for p in held)
        held[0].kill()
        held[0].wait()
        (tmp_path / "claw-x-strange").mkdir()
        mine = Scratch("claw-x-")
        left = {str(p) for p in tmp_path.iterdir()}
        assert killed not in left and living in left and str(mine.path) in left
        assert str(tmp_path / "claw-x-strange") in left, "a folder without a lock is not ours"
        assert (mine.path / LOCK).exists()
        mine.close()
        assert not mine.path.exists()
    finally:
        for process in held:
            process.kill()
            process.wait()
