"""The Triton backend in Triton's interpreter: the kernels' own tests and those of any backend.

The interpreter is chosen before triton is imported, so each part runs in a process of its own.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ANY_BACKEND = ("test_score.py", "test_hybrid_loss.py", "test_overlap.py", "test_recompute.py",
               "test_shard.py")  # fmt: skip
"""ask the public functions, and so the backend that is chosen"""
LEFT_OUT = ("reference", "overlap1", "hybrid_loss1", "plain_version", "memory", "equal_logits",
            "confident_token", "four", "even-")  # fmt: skip
"""the plain version's, what is slow, and where the interpreter cuts off what a GPU rounds; all but
the memory are asked again by interpreted/"""

pytestmark = pytest.mark.usefixtures("needs_triton")


def run(*arguments: str) -> None:
    settings = {"TRITON_INTERPRET": "1", "CLAW_KERNELS": "triton", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, *arguments],
        capture_output=True,
        text=True,
        env=os.environ | settings,
        cwd=HERE.parents[1],
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    summary = done.stdout.splitlines()[-1]
    assert " passed" in summary and "skipped" not in summary


def test_the_kernels_are_right_in_the_interpreter() -> None:
    run(*map(str, sorted(HERE.glob("interpreted/check_*.py"))))


@pytest.mark.slow
def test_the_public_functions_on_triton_pass_the_tests_of_any_backend() -> None:
    files = [str(HERE / name) for name in ANY_BACKEND]
    run(*files, "-k", " and ".join(f"not {words}" for words in LEFT_OUT))
