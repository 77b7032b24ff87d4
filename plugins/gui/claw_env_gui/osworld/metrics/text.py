"""Metrics of strings and text files."""

import ast
import difflib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

MAX_FILE = 4 << 20


def content(path: Path | None) -> str:
    """Return a text file's content; what is no UTF-8 is replaced."""
    if path is None:
        raise FileNotFoundError("no file")
    return path.read_bytes()[:MAX_FILE].decode("utf-8-sig", "replace")


def exact_match(result: Any, rules: dict[str, Any]) -> float:
    """The result is the expected value."""
    return float(result == rules["expected"])


def literal_match(
    result: Any, expected: Any, type: str = "str", ignore_case: bool = False
) -> float:
    """The same text, or the same list in any order."""
    def folded(value: Any) -> str:
        return str(value).lower() if ignore_case else str(value)

    if type == "list":
        if not isinstance(result, list) or not isinstance(expected, list):
            return 0.0
        return float(sorted(map(folded, result)) == sorted(map(folded, expected)))
    return float(folded(result) == folded(expected))


def check_include_exclude(result: str | None, rules: dict[str, Any]) -> float:
    """Every word of `include` is in it, none of `exclude`."""
    if result is None:
        return 0.0
    return float(all(word in result for word in rules.get("include", ()))
                 and not any(word in result for word in rules.get("exclude", ())))


def is_in_list(result: Any, rules: dict[str, Any]) -> float:
    """The expected value is one of the result's."""
    return float(rules["expected"] in result)


def match_in_list(result: Any, rules: dict[str, Any]) -> float:
    """The result is one of the expected values."""
    return float(result in rules["expected"])


def check_list(result: Path | None, rules: dict[str, list[str]]) -> float:
    """Each pattern of `expect` is found in a line of the file, none of `unexpect` is."""
    rows = content(result).splitlines()
    def found(pattern: str) -> bool:
        return any(re.search(pattern, row) for row in rows)
    return float(all(map(found, rules.get("expect", ())))
                 and not any(map(found, rules.get("unexpect", ()))))


def compare_text_file(actual: Path | None, expected: Path | None, ignore_blanks: bool = False,
                      ignore_case: bool = False) -> float:
    """Two files hold the same text."""
    def plain(path: Path | None) -> str:
        text = content(path)
        if ignore_blanks:
            text = re.sub(r"\s+", " ", re.sub(r"[\t\n]", " ", text).strip())
        return text.lower() if ignore_case else text
    return float(plain(actual) == plain(expected))


def diff_text_file(result: Path | None, expected: Path | None) -> float:
    """How alike two files are, line by line."""
    lines = [content(path).splitlines() for path in (result, expected)]
    return difflib.SequenceMatcher(a=lines[0], b=lines[1]).ratio()


def file_contains(path: Path | None, config: dict[str, Any]) -> float:
    """The file holds every expected text."""
    text = content(path)
    return float(all(word in text for word in config["expected"]))


def compare_config(actual: Path | str | None, rules: dict[str, Any]) -> float:
    """The text of a settings file is the expected one."""
    text = actual if isinstance(actual, str) else content(actual)
    return float(text == rules["expected"])


def check_line_number(path: Path | None, line_number: dict[str, Any]) -> float:
    """The file has so many lines that hold a time of day, as subtitles do."""
    stamp = re.compile(r"([0-9]{2}:[0-9]{2}:[0-9]{2})")
    found = sum(bool(stamp.search(row)) for row in content(path).splitlines())
    return float(found == int(line_number["expected"]))


def compare_python_pure_text(path: Path | None, gold: Path | None) -> float:
    """Two programs mean the same: one syntax tree, whatever their blanks and remarks."""
    return float(ast.dump(ast.parse(content(path))) == ast.dump(ast.parse(content(gold))))


def is_utc_0(result: str) -> float:
    """What timedatectl says has the zone UTC."""
    return float("+0000)" in result)


def is_expected_url_pattern_match(result: Any, rules: dict[str, Any]) -> float:
    """The address fits each of the expected patterns."""
    address = result.get("url", "") if isinstance(result, dict) else str(result or "")
    return float(all(re.search(pattern, address) for pattern in rules["expected"]))


METRICS: dict[str, Callable[..., float]] = {f.__name__: f for f in (
    exact_match, literal_match, check_include_exclude, is_in_list, match_in_list, check_list,
    compare_text_file, diff_text_file, file_contains, compare_config, check_line_number,
    compare_python_pure_text, is_utc_0, is_expected_url_pattern_match,
)}
OPTIONS: dict[str, tuple[str, ...]] = {
    "literal_match": ("type", "ignore_case"),
    "compare_text_file": ("ignore_blanks", "ignore_case"),
}
