"""Logs of `go test -v` (or `-json`), `jest --verbose` and `cargo test`."""

import json
import re
from collections.abc import Iterator

_GO = re.compile(r"^\s*--- (PASS|FAIL|SKIP): (\S+)(?: \([\d.]+s\))?\s*$")
_GO_BEHIND = re.compile(r"--- (PASS|FAIL|SKIP): (\S+) \([\d.]+s\)$")
"""a test printed something without an end of line"""
_GO_WORDS = {"PASS": "passed", "FAIL": "failed", "SKIP": "skipped"}
_JEST = re.compile(r"^(\s*)(?:([✓√✕\u00d7○✎]) )(?:skipped |todo )?(.+?)(?: \([\d.,]+ ?m?s\))?\s*$")
_JEST_WORDS = {"✓": "passed", "√": "passed", "✕": "failed", "\u00d7": "failed", "○": "skipped",
               "✎": "skipped"}
_CARGO = re.compile(r"^test (.+?) \.\.\. (ok|FAILED|ignored.*)$")


def go(text: str) -> Iterator[tuple[str, str]]:
    """`--- PASS: TestA/sub (0.00s)`; with `-json` also `package.TestA/sub`."""
    for line in text.splitlines():
        if line.startswith("{"):
            yield from _go_json(line)
        elif match := _GO.match(line) or _GO_BEHIND.search(line):
            yield match[2], _GO_WORDS[match[1]]


def _go_json(line: str) -> Iterator[tuple[str, str]]:
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return
    if not isinstance(said, dict) or not said.get("Test"):
        return
    status = _GO_WORDS.get(str(said.get("Action")).upper())
    if status:
        yield str(said["Test"]), status
        yield f"{said.get('Package')}.{said['Test']}", status


def jest(text: str) -> Iterator[tuple[str, str]]:
    """A test by its own words, and with those of the groups that it stands in: `a > b > c`."""
    groups: list[tuple[int, str]] = []
    for line in text.splitlines():
        if match := _JEST.match(line):
            depth, status = len(match[1]), _JEST_WORDS[match[2]]
            groups = [g for g in groups if g[0] < depth]
            yield match[3], status
            if groups:
                yield " > ".join([*(name for _, name in groups), match[3]]), status
        elif line.startswith("  ") and line.strip():
            depth = len(line) - len(line.lstrip())
            groups = [g for g in groups if g[0] < depth] + [(depth, line.strip())]
        elif line.startswith(("PASS ", "FAIL ")):
            groups = []


def cargo(text: str) -> Iterator[tuple[str, str]]:
    """`test module::name ... ok`."""
    for line in text.splitlines():
        if match := _CARGO.match(line.rstrip()):
            status = {"ok": "passed", "FAILED": "failed"}.get(match[2], "skipped")
            yield match[1].removesuffix(" - should panic"), status
