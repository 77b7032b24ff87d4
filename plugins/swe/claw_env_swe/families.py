"""From the columns of a row to an instance: one function for each family of rows.

Owns: which family a row is of, what its columns mean, its image's name.
Does not own: files of rows (`rows`), running anything.

Unknown columns are ignored; a missing one that is needed is an error that names it.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from claw.sdk.foreign_json import from_json

from .commands import CONDA, suite_of
from .instance import Instance, RowError, Source, Suite

Row = Mapping[str, Any]
R2E_TESTS = ("/r2e_tests", "/root/r2e_tests", "/root/run_tests.sh", "/run_tests.sh")
GYM_REPOS = {
    "Project-MONAI/MONAI", "bokeh/bokeh", "conan-io/conan", "dask/dask",
    "facebookresearch/hydra", "getmoto/moto", "iterative/dvc", "modin-project/modin",
    "pandas-dev/pandas", "pydantic/pydantic", "python/mypy",
}
"""SWE-Gym has SWE-bench's columns: its repositories tell it apart"""


def read(row: Row, *, family: str = "auto", base: Path | None = None) -> Instance:
    """Return the instance of a row; `base` is where its relative paths begin."""
    found = family_of(row) if family == "auto" else family
    try:
        made = READERS[found](row, base or Path())
    except KeyError as error:
        raise RowError(f"a row of {found} lacks a column", found=_name(row),
                       allowed=f"a column {error.args[0]!r}") from error
    except (AttributeError, TypeError, ValueError, RecursionError) as error:
        raise RowError(f"a row of {found} has a column of another kind than this family's",
                       found=f"{_name(row)}: {error}"[:300]) from error
    if not made.id:
        raise RowError(f"a row of {found} has an empty id", found=_name(row))
    return made


def family_of(row: Row) -> str:
    """Return the family by the columns that only one of them has."""
    if "source" in row and isinstance(_object(row, "source"), Mapping) and _object(row, "source"):
        return "source"
    if "expected_output_json" in row:
        return "r2e-gym"
    about = _object(row, "metadata")
    if "label" in row or "remote_env_info" in row or "remote_env_info" in about:
        return "slime"
    if "eval_cmd" in about or "swepro" in about:
        return "slime"
    if "instance_id" not in row:
        raise RowError("a row is of no known family", found=f"columns {', '.join(sorted(row))}",
                       allowed=", ".join(READERS), do="set plugin.swe.family")
    if "install_config" in row:
        return "swe-rebench"
    if row.get("image_name") and not row.get("test_patch"):
        return "swe-smith"
    if row.get("image_name") or row.get("docker_image"):
        return "swe-rebench"
    return "swe-gym" if str(row.get("repo")) in GYM_REPOS else "swe-bench"


def image_of(row: Row, family: str) -> str:
    """`image_name`, then `docker_image`, then the name that the family derives from the id."""
    for column in ("image_name", "docker_image"):
        if row.get(column):
            return str(row[column])
    id = str(row["instance_id"])
    if family == "swe-gym":
        return f"xingyaoww/sweb.eval.x86_64.{id.replace('__', '_s_')}".lower()
    if family == "swe-bench":
        return f"docker.io/swebench/sweb.eval.x86_64.{id.replace('__', '_1776_')}:latest".lower()
    raise RowError("a row names no image", found=id, allowed="image_name or docker_image")


def tests(row: Row, column: str) -> tuple[str, ...]:
    """Test ids of a column: a list, or a JSON string of one."""
    value = row.get(column)
    if isinstance(value, str):
        try:
            value = from_json(value) if value.strip() else []
        except ValueError as error:
            raise RowError(f"{column} is neither a list nor a JSON string of one",
                           found=f"{_name(row)}: {value[:80]!r}") from error
    if value is None:
        return ()
    if isinstance(value, Mapping | bytes | int | float) or not all(
        isinstance(v, str) for v in value
    ):
        raise RowError(f"{column} is no list of tests", found=f"{_name(row)}: {str(value)[:80]}")
    return tuple(value)


def _swe_bench(row: Row, family: str) -> Instance:
    id, test_patch = str(row["instance_id"]), str(row.get("test_patch") or "")
    must, keep = tests(row, "FAIL_TO_PASS"), tests(row, "PASS_TO_PASS")
    if not must:
        raise RowError("an instance without FAIL_TO_PASS decides nothing", found=id)
    return Instance(
        id, family, str(row["problem_statement"]), must, keep, repo=str(row.get("repo") or ""),
        base_commit=str(row.get("base_commit") or ""), image=image_of(row, family),
        gold=str(row.get("patch") or ""), test_patch=test_patch,
        suite=suite_of(row, CONDA), hints_text=str(row.get("hints_text") or ""),
    )


def _smith(row: Row) -> Instance:
    """The patch of a row makes the defect; what takes it back is the solution."""
    id = str(row["instance_id"])
    problem = str(row.get("problem_statement") or "") or (
        "Some tests of this repository fail. Find the defect in its source and mend it.")
    must = tests(row, "FAIL_TO_PASS")
    if not must:
        raise RowError("an instance without FAIL_TO_PASS decides nothing", found=id)
    return Instance(
        id, "swe-smith", problem, must, tests(row, "PASS_TO_PASS"), repo=str(row.get("repo") or ""),
        image=image_of(row, "swe-smith"), defect=str(row["patch"]), suite=suite_of(row, CONDA),
    )


def _r2e(row: Row) -> Instance:
    expected = row["expected_output_json"]
    try:
        expected = from_json(expected) if isinstance(expected, str) else expected
    except ValueError as error:
        raise RowError("expected_output_json is no JSON", found=_name(row)) from error
    if not isinstance(expected, Mapping) or not expected:
        raise RowError("expected_output_json is no map of tests", found=_name(row))
    commit = _object(row, "parsed_commit_content")
    text = str(row["problem_statement"])
    if inner := re.search(r"\[ISSUE\](.*?)\[/ISSUE\]", text, re.DOTALL):
        text = inner[1].strip()
    id = str(row.get("instance_id") or "") or (
        f"{row.get('repo_name', 'repo')}-{row.get('commit_hash') or image_of(row, 'r2e-gym')}")
    return Instance(
        id, "r2e-gym", text, expected={str(k): str(v) for k, v in expected.items()},
        repo=str(row.get("repo_name") or ""), image=image_of(row, "r2e-gym"),
        gold=_commit_patch(commit), hidden=R2E_TESTS,
        suite=Suite("pytest", "bash /root/run_tests.sh", path="/testbed/.venv/bin"),
    )


def _commit_patch(commit: Mapping[str, Any]) -> str:
    """The diff of the files that are no tests, from R2E-Gym's parsed commit."""
    made = []
    for one in commit.get("file_diffs") or ():
        header = one.get("header") or {}
        path = str((header.get("file") or {}).get("path") or header.get("path") or "")
        if not path or re.search(r"(^|/)tests?(/|_)|(^|/)conftest\.py$", path):
            continue
        old, new = str(one.get("old_file_content") or ""), str(one.get("new_file_content") or "")
        made.append(_diff(path, old, new))
    return "".join(made)


def _diff(path: str, old: str, new: str) -> str:
    import difflib

    lines = difflib.unified_diff(
        old.splitlines(keepends=True), new.splitlines(keepends=True), f"a/{path}", f"b/{path}")
    body = "".join(x if x.endswith("\n") else f"{x}\n\\ No newline at end of file\n"
                   for x in lines)
    return f"diff --git a/{path} b/{path}\n{body}" if body else ""


def _slime(row: Row) -> Instance:
    about = _object(row, "metadata")
    remote = _object(row, "remote_env_info") or _object(about, "remote_env_info")
    image = str(about.get("image") or remote.get("image") or "")
    command, script = about.get("eval_cmd"), remote.get("f2p_script")
    if not image or not (command or script):
        raise RowError("a coding row of slime needs an image and a way to evaluate",
                       found=_name(row),
                       allowed="metadata.image with eval_cmd, or remote_env_info.image with "
                               "f2p_script")
    before = about.get("pre_commands") or ()
    before = (before,) if isinstance(before, str) else tuple(map(str, before))
    return Instance(
        str(row.get("instance_id") or about.get("instance_id") or row.get("label") or image),
        "slime", _problem(row, about), by_exit_code=True, image=image,
        base_commit=str(remote.get("base_commit") or about.get("base_commit") or ""),
        workdir=str(about.get("workdir") or remote.get("workdir") or "/testbed"), setup=before,
        gold=str(about.get("patch") or _object(about, "swepro").get("patch") or ""),
        suite=Suite(command=str(command or f"python3 - <<'EOF_F2P'\n{script}\nEOF_F2P")),
    )


def _problem(row: Row, about: Mapping[str, Any]) -> str:
    if about.get("problem_statement"):
        return str(about["problem_statement"])
    prompt = row["prompt"]
    if isinstance(prompt, str):
        return prompt
    return "\n\n".join(str(m.get("content") or "") for m in prompt if m.get("role") == "user")


def _source(row: Row, base: Path) -> Instance:
    """claw's own rows: a source distribution or a git repository, on the base image."""
    about = _object(row, "source")
    where = Source(str(about.get("sdist") or ""), str(about.get("sha256") or ""),
                   str(about.get("git") or ""))
    folder = about.get("build")
    if not (where.sdist and where.sha256) and not where.git and not folder:
        raise RowError("a source is neither pinned nor there", found=_name(row),
                       allowed="sdist with sha256, git with base_commit, or build")
    must = tests(row, "FAIL_TO_PASS")
    if not must:
        raise RowError("an instance without FAIL_TO_PASS decides nothing",
                       found=str(row["instance_id"]))
    git = where.git
    if git and not re.match(r"[a-z+]+://|[^/]+@", git):
        where = Source(git=str((base / git).expanduser()))
    return Instance(
        str(row["instance_id"]), "source", str(row["problem_statement"]), must,
        tests(row, "PASS_TO_PASS"), repo=str(row.get("repo") or ""),
        base_commit=str(row.get("base_commit") or ""),
        build_folder=base / str(folder) if folder else None,
        source=None if folder else where, gold=str(row.get("patch") or ""),
        test_patch=str(row.get("test_patch") or ""), is_gold_reversed=bool(where.sdist),
        workdir=str(about.get("workdir") or "/testbed"), suite=suite_of(row, {}),
        hints_text=str(row.get("hints_text") or ""),
    )


def _object(row: Row, column: str) -> Mapping[str, Any]:
    """A column that is an object, or a JSON string of one; else nothing."""
    value = row.get(column)
    if isinstance(value, str):
        try:
            value = from_json(value)
        except ValueError:
            return {}
    return value if isinstance(value, Mapping) else {}


def _name(row: Row) -> str:
    return str(row.get("instance_id") or row.get("repo_name") or row.get("label") or "a row")[:80]


READERS: dict[str, Callable[[Row, Path], Instance]] = {
    "swe-bench": lambda row, _: _swe_bench(row, "swe-bench"),
    "swe-gym": lambda row, _: _swe_bench(row, "swe-gym"),
    "swe-smith": lambda row, _: _smith(row),
    "r2e-gym": lambda row, _: _r2e(row),
    "swe-rebench": lambda row, _: _swe_bench(row, "swe-rebench"),
    "slime": lambda row, _: _slime(row),
    "source": _source,
}
