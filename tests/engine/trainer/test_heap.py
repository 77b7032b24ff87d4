"""What is freed goes back to the machine: a heap with holes, in a process of its own."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys
import numpy as np
from claw.engine.trainer import heap

def resident():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) // 1024

if sys.argv[1] == "on":
    assert heap.give_back()
# glibc learns from the first large free() to keep such blocks
first = np.ones(3 << 20)
del first
before = resident()
blocks = [np.ones(1 << 20) for _ in range(20)]
last = np.ones(1 << 20)
del blocks
print(resident() - before)
"""


def held_mb(word: str) -> int:
    done = subprocess.run([sys.executable, "-c", PROGRAM, word], capture_output=True, text=True,
                          timeout=60, check=True)
    return int(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's mallopt")
def test_freed_blocks_between_used_ones_go_back_only_when_asked_for():
    assert held_mb("off") > 100, "this C library gives back by itself: the module is not needed"
    assert held_mb("on") < 20
