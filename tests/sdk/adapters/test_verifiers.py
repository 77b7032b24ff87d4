"""Real verifiers packages. Each version of verifiers has an environment of its own, where these
tests run pytest again; the files under foreign/ say what is checked."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from claw.errors import UsageError
from claw.sdk import registry

HERE = Path(__file__).parent


def check(python: str, *files: str) -> None:
    command = [python, "-W", "ignore", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider",
               "--timeout=120", "--rootdir", str(HERE), "-c", os.devnull]
    done = subprocess.run([*command, *(str(HERE / "foreign" / f) for f in files)],
                          capture_output=True, text=True, cwd=HERE)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    summary = done.stdout.splitlines()[-1]
    assert " passed" in summary and "skipped" not in summary


def test_v1_tasksets_are_played_with_verifiers_0_4(new_verifiers: str) -> None:
    check(new_verifiers, "check_v1.py")


@pytest.mark.slow
def test_v1_and_v0_packages_are_played_with_verifiers_0_3(old_verifiers: str) -> None:
    check(old_verifiers, "check_v1.py", "check_v0.py")


@pytest.mark.slow
def test_a_v0_package_beside_verifiers_0_4_is_told_what_it_needs(new_verifiers: str) -> None:
    code = ("from claw.sdk import registry\n"
            "plugin = registry.load('verifiers')\n"
            "settings = plugin.settings({'package': 'clawtest-sums'})\n"
            "try: plugin.hook.claw_tasks(config=settings, split='train')\n"
            "except Exception as error: print(type(error).__name__, error)\n")
    done = subprocess.run([new_verifiers, "-c", code], capture_output=True, text=True)
    assert done.stdout.startswith("UsageError the verifiers package 'clawtest-sums' cannot be")
    assert "a v0 package needs verifiers<0.4" in done.stdout


def test_without_verifiers_the_error_says_what_to_install() -> None:
    plugin = registry.load("verifiers")
    settings = plugin.settings({"package": "anything"})
    code = ("import sys; sys.modules['verifiers'] = None\n"
            "from claw.sdk import registry\n"
            "plugin = registry.load('verifiers')\n"
            "plugin.hook.claw_tasks(config=plugin.settings({'package': 'x'}), split='train')\n")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert settings.package == "anything"
    assert "the plugin 'verifiers' needs the package 'verifiers'" in done.stderr
    assert "pip install 'verifiers'" in done.stderr


def test_a_missing_package_name_is_asked_for() -> None:
    with pytest.raises(UsageError, match=r"plugin\.verifiers\.package: Field required"):
        registry.load("verifiers").settings({})


def test_the_adapters_import_nothing_of_what_they_adapt() -> None:
    code = ("import sys\n"
            "from claw.sdk import registry\n"
            "for name in ('verifiers', 'openenv'): registry.load(name)\n"
            "print(sorted({'verifiers', 'openenv', 'websockets', 'httpx'} & set(sys.modules)))\n")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
