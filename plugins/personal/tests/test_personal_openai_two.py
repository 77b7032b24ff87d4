"""The official client's older major version passes the same tests, in its own environment."""

import subprocess
from pathlib import Path

import openai
import pytest

HERE = Path(__file__).parent
FILES = ("test_personal_client.py", "test_personal_responses.py")


def test_the_tests_of_the_client_run_here_with_openai_3():
    assert openai.__version__.startswith("3.")


@pytest.mark.real
@pytest.mark.slow
def test_openai_2_passes_the_same_tests(openai_two):
    version = subprocess.run([openai_two, "-c", "import openai; print(openai.__version__)"],
                             capture_output=True, text=True, check=True).stdout
    assert version.startswith("2.")
    done = subprocess.run(
        [openai_two, "-m", "pytest", "-q", "-p", "no:cacheprovider", *(HERE / f for f in FILES)],
        capture_output=True, text=True, timeout=240, cwd=HERE.parents[2], check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    assert " passed" in done.stdout and "skipped" not in done.stdout
