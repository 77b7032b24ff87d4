"""Logs of pytest (`-rA`), unittest (`-v`) and Django's runner (`--verbosity 2`).

Each yields (test, status); SWE-bench's own names of tests are yielded beside the full ones: it cuts
pytest's at the first space, and calls a Django test by the first line of its docstring.
"""

import re
from collections.abc import Iterator

WORDS = {"PASSED": "passed", "FAILED": "failed", "ERROR": "error", "SKIPPED": "skipped",
         "XFAIL": "passed", "XPASS": "failed"}
_LINE = re.compile(rf"^({'|'.join(WORDS)}) (\S.*)$")
_VERBOSE = re.compile(rf"^(\S+::.+?) ({'|'.join(WORDS)})(?: +\[ *\d+%\])?$")
_ENDS = {"ok": "passed", "FAIL": "failed", "ERROR": "error", "expected failure": "passed",
         "unexpected success": "failed"}
_END = re.compile(r"(?:^|[ .)])(ok|FAIL|ERROR|expected failure|unexpected success|skipped\b.*)$")
_TEST = re.compile(r"^(\w+) \(([\w.<>]+)\)")
_HEAD = re.compile(r"^(FAIL|ERROR): (\w+ \([\w.<>]+\))")


def pytest(text: str) -> Iterator[tuple[str, str]]:
    """`PASSED tests/a.py::b`, `FAILED tests/a.py::b[x - y] - AssertionError`."""
    for line in text.splitlines():
        if match := _LINE.match(line.strip()):
            word, rest = match.groups()
            if word == "SKIPPED" and rest.startswith("["):
                continue  # `SKIPPED [1] tests/a.py:3: reason` names no test
            yield from _named(_id(rest), WORDS[word])
        elif match := _VERBOSE.match(line.strip()):
            yield from _named(match[1], WORDS[match[2]])


def _id(rest: str) -> str:
    """The id without the reason behind ` - `, which may stand in a parameter too."""
    at, depth = 0, 0
    while at < len(rest):
        depth += (rest[at] == "[") - (rest[at] == "]")
        if depth <= 0 and rest.startswith(" - ", at):
            return rest[:at]
        at += 1
    return rest.split("] - ", 1)[0] + "]" if "] - " in rest else rest


def _named(id: str, status: str) -> Iterator[tuple[str, str]]:
    yield id, status
    if " " in id:
        yield id.split()[0], status


def unittest(text: str) -> Iterator[tuple[str, str]]:
    """`test_a (mod.Case.test_a) ... ok`; a docstring's first line may stand between."""
    name, about = "", ""
    for line in text.splitlines():
        if match := _HEAD.match(line):
            yield match[2], {"FAIL": "failed", "ERROR": "error"}[match[1]]
            continue
        if match := _TEST.match(line):
            name, about = match[0], ""
        elif name and not about and " ... " in line:
            about = line.split(" ... ", 1)[0].strip()
        if not name or not (end := _END.search(line.rstrip())):
            continue
        status = _ENDS.get(end[1], "skipped")
        yield name, status
        if about:
            yield about, status
        name = ""


def django(text: str) -> Iterator[tuple[str, str]]:
    """Django's runner is unittest's, with set-up messages between a name and its status."""
    return unittest(text)
