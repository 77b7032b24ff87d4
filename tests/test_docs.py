"""The README and the docs describe what is there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from claw import config
from claw.sdk import hooks

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def tree_files() -> list[str]:
    """The paths that the README's tree names."""
    block = re.search(r"```tree\n(.*?)```", README, re.S)
    assert block, "the README has a block marked `tree`"
    folders: list[str] = []
    found = []
    for line in block.group(1).splitlines():
        name = line.split()[0] if line.strip() else ""
        depth = (len(line) - len(line.lstrip())) // 2
        folders = folders[:depth]
        if name.endswith("/"):
            folders.append(name)
        elif name:
            found.append("".join(folders) + name)
    return found


def source_files() -> set[str]:
    """Every Python file of the packages that is more than a package's docstring."""
    files = [*ROOT.glob("claw/**/*.py"), *ROOT.glob("plugins/*/claw_env_*/**/*.py")]
    return {
        f.relative_to(ROOT).as_posix() for f in files
        if "shipped" not in f.parts  # the files of tasks are data
        and (f.name not in ("__init__.py", "__main__.py") or len(f.read_text().splitlines()) > 8)
    }


def test_every_file_of_the_tree_exists() -> None:
    missing = [f for f in tree_files() if not (ROOT / f).exists()]
    assert not missing


def test_every_source_file_is_in_the_tree() -> None:
    assert source_files() <= set(tree_files())


def test_the_readme_names_every_hook() -> None:
    for hook in hooks.HOOKS:
        assert f"`{hook.__name__}`" in README


def test_the_configuration_reference_has_every_setting_with_its_default() -> None:
    text = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert text == config.reference()


@pytest.mark.parametrize("words", [[], ["train"], ["serve"], ["eval"], ["why"], ["view"],
                                   ["rollback"], ["forget"], ["judge"], ["judge", "audit"],
                                   ["judge", "test"],
                                   ["config"], ["plugin"], ["plugin", "new"], ["plugin", "check"],
                                   ["env"], ["env", "list"], ["env", "inspect"], ["env", "check"],
                                   ["env", "host"], ["people"], ["people", "add"],
                                   ["people", "budget"],
                                   ["doctor"],
                                   ["quarantine"], ["quarantine", "list"],
                                   ["quarantine", "release"], ["quarantine", "drop"]])
def test_the_command_line_reference_is_what_help_prints(words: list[str]) -> None:
    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "claw", *words, "--help"], capture_output=True, text=True,
        env={"COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1", "PATH": ""}, check=True,
    )
    body = "\n".join(line.rstrip() for line in done.stdout.strip().splitlines())
    assert body in text
