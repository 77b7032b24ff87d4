"""One instance: a repository in a state with a defect, and the tests that decide.

Owns: the record that the readers of rows fill.
Does not own: what a family's columns mean (`families`), running any of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from claw.sdk import UsageError


class RowError(UsageError):
    """A row that is no instance, or that asks for what claw does not do."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where a repository comes from when no image holds it."""

    sdist: str = ""
    """`name==version` of a source distribution on pip's index"""
    sha256: str = ""
    """of the sdist"""
    git: str = ""
    """address or path of a repository, taken at `base_commit`"""


@dataclass(frozen=True, slots=True)
class Suite:
    """How tests are run and read."""

    framework: str = "pytest"
    """name of a log parser in `logs`"""
    command: str = ""
    """a shell command, in which `{files}` stands for the test files; empty: the framework's"""
    files: tuple[str, ...] = ()
    """what to test; empty: told by the test patch and the tests' ids"""
    path: str = ""
    """folders before the others on PATH"""
    env: Mapping[str, str] = field(default_factory=dict)
    output: str = ""
    """a file that the tests write and that is read instead of their log, such as JUnit's XML"""


@dataclass(frozen=True, slots=True)
class Instance:
    """What an agent is asked, where it acts, and how its patch is graded."""

    id: str
    family: str
    problem: str
    fail_to_pass: tuple[str, ...] = ()
    pass_to_pass: tuple[str, ...] = ()
    expected: Mapping[str, str] = field(default_factory=dict)
    """R2E-Gym: test -> status; exactly these must come out"""
    by_exit_code: bool = False
    """slime: the command's exit code decides"""
    repo: str = ""
    base_commit: str = ""
    image: str = ""
    """a ready image; empty: `build_folder`, else `source`"""
    build_folder: Path | None = None
    """a folder with a Dockerfile"""
    source: Source | None = None
    workdir: str = "/testbed"
    gold: str = ""
    """diff that solves it"""
    defect: str = ""
    """diff that brings the defect into the repository (SWE-smith)"""
    is_gold_reversed: bool = False
    """the repository holds the solution: `gold` and `test_patch` are taken back to begin with"""
    test_patch: str = ""
    """diff of the tests, unknown to the agent"""
    suite: Suite = field(default_factory=Suite)
    hidden: tuple[str, ...] = ()
    """paths that the agent must not find"""
    setup: tuple[str, ...] = ()
    """commands before the agent"""
    hints_text: str = ""

    @property
    def has_gold(self) -> bool:
        return bool(self.gold or self.defect)
