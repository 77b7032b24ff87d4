"""Metrics of JSON, CSV, folders and archives."""

import csv
import json
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .text import content

MAX_MEMBERS = 2000
MAX_MEMBER = 32 << 20
METHODS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": lambda a, b: bool(a == b), "ne": lambda a, b: bool(a != b),
    "lt": lambda a, b: bool(a < b), "le": lambda a, b: bool(a <= b),
    "gt": lambda a, b: bool(a > b), "ge": lambda a, b: bool(a >= b),
    "re": lambda a, b: re.search(b, str(a)) is not None, "in": lambda a, b: a in b,
}


def check_direct_json_object(result: Any, rules: dict[str, Any]) -> float:
    """Each expected key has its value; with `expect_in_result` the value is within the result's."""
    if isinstance(result, str):
        result = json.loads(result.strip().replace("'", '"'))
    expected = rules["expected"]
    if not isinstance(result, dict) or not isinstance(expected, dict):
        return 0.0
    if rules.get("expect_in_result"):
        return float(all(_within(wanted, result.get(key)) for key, wanted in expected.items()))
    return float(all(result.get(key) == wanted for key, wanted in expected.items()))


def _within(wanted: Any, found: Any) -> bool:
    if found is None:
        return False
    if isinstance(wanted, list):
        return any(_within(each, found) for each in wanted)
    return wanted in found if isinstance(found, str | list) else bool(wanted == found)


def check_json(result: Path | None, rules: dict[str, list[dict[str, Any]]]) -> float:
    """Values of a JSON file, reached by their keys, meet the rules."""
    raw = json.loads(content(result))

    def holds(rule: dict[str, Any]) -> bool:
        value = raw
        for key in rule["key"]:
            try:
                value = value[int(key) if isinstance(value, list) else key]
            except (KeyError, IndexError, TypeError):
                return False
        return METHODS[rule["method"]](value, rule["ref"])

    return float(all(map(holds, rules.get("expect", ())))
                 and not any(map(holds, rules.get("unexpect", ()))))


def check_csv(result: Path | None, rules: dict[str, list[dict[str, str]]]) -> float:
    """For each of `expect` there is a row with these values, for each of `unexpect` none."""
    rows = list(csv.DictReader(content(result).splitlines()))

    def found(wanted: dict[str, str]) -> bool:
        return any(all(row.get(k) == v for k, v in wanted.items()) for row in rows)
    return float(all(map(found, rules.get("expect", ())))
                 and not any(map(found, rules.get("unexpect", ()))))


def compare_csv(result: Path | None, expected: Any, strict: bool = True,
                ignore_case: bool = False) -> float:
    """Two tables of text are the same; of several expected ones, one of them."""
    def rows(path: Path | None) -> list[str]:
        text = content(path)
        text = text.lower() if ignore_case else text
        lines = [row.rstrip("\r") for row in text.splitlines()]
        return lines if strict else [row.strip() for row in lines if row.strip()]
    wanted = expected if isinstance(expected, list) else [expected]
    return float(any(rows(result) == rows(each) for each in wanted))


def compare_archive(result: Path | None, expected: Path | None) -> float:
    """Two zip files hold the same members with the same content."""
    return float(_members(result) == _members(expected))


def _members(path: Path | None) -> dict[str, bytes]:
    if path is None:
        raise FileNotFoundError("no file")
    with zipfile.ZipFile(path) as archive:
        infos = [info for info in archive.infolist() if not info.is_dir()]
        if len(infos) > MAX_MEMBERS or sum(info.file_size for info in infos) > MAX_MEMBER:
            raise ValueError("the archive is too large")
        return {info.filename: archive.read(info) for info in infos}


def check_moved_jpgs(listing: dict[str, Any], rules: dict[str, Any]) -> float:
    """A folder holds exactly the expected names."""
    names = sorted(child["name"] for child in listing["children"])
    return float(names == sorted(rules["expected"]))


METRICS: dict[str, Callable[..., float]] = {
    **{f.__name__: f for f in (check_direct_json_object, check_json, check_csv, compare_csv,
                               compare_archive, check_moved_jpgs)},
    "compare_zip_files": compare_archive,
}
OPTIONS: dict[str, tuple[str, ...]] = {"compare_csv": ("strict", "ignore_case")}
