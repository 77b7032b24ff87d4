"""Which patches are refused: those that touch what decides about them.

Owns: the rule. Does not own: reading a patch (git does, in the grading container), grading.

The rule. A patch may not touch, create, delete or rename
  1. a file of the test patch, or one that FAIL_TO_PASS, PASS_TO_PASS or the suite name;
  2. a file by which a test framework is configured, extended or replaced (NAMES, and the names of a
     framework's own modules at the top of the repository or of `src`), unless the gold patch
     touches that very file too.
Tests of its own in other files are welcome; they decide nothing.
"""

import fnmatch

from .commands import paths_in, paths_of_tests
from .instance import Instance

NAMES = (
    "conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "tox.ini",
    "setup.cfg", "pyproject.toml", "sitecustomize.py", "usercustomize.py", "*.pth",
    "runtests.py", "jest.config.*", "jest.setup.*", "vitest.config.*", "babel.config.*",
    ".babelrc*", "package.json", ".gitattributes", "run_tests.sh",
)
FRAMEWORKS = ("pytest", "_pytest", "pluggy", "iniconfig", "unittest", "doctest", "junitxml")


def refused(paths: list[str], instance: Instance) -> list[str]:
    """Return those of the paths of a patch that it may not touch."""
    tests, gold = paths_of_tests(instance), set(paths_in(instance.gold))
    return [p for p in paths if p in tests or (p not in gold and _decides(p))]


def _decides(path: str) -> bool:
    parts = path.split("/")
    if any(fnmatch.fnmatch(parts[-1], name) for name in NAMES):
        return True
    top = parts[1:] if parts[0] == "src" and len(parts) > 1 else parts
    return top[0].split(".", 1)[0] in FRAMEWORKS
