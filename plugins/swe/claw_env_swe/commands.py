"""Which command tests an instance, and in which words its log is written.

Owns: the table of frameworks, and what a row says about its own tests.
Does not own: reading logs (`logs`), running anything.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from claw.sdk.foreign_json import from_json

from .instance import Instance, RowError, Suite
from .logs import PARSERS

PYTEST = "python3 -m pytest -rA --tb=no -p no:cacheprovider {files}"
COMMANDS = {
    "pytest": PYTEST,
    "unittest": "python3 -m unittest -v {files}",
    "django": "./tests/runtests.py --verbosity 2 --settings=test_sqlite --parallel 1 {files}",
    "go": "go test -v ./...",
    "jest": "npx jest --verbose {files}",
    "cargo": "cargo test --no-fail-fast",
}
BY_REPO = {"django/django": "django"}
"""everything else is tested by pytest unless its row says otherwise"""
CONDA = {"path": "/opt/miniconda3/envs/testbed/bin",
         "env": {"CONDA_PREFIX": "/opt/miniconda3/envs/testbed", "CONDA_DEFAULT_ENV": "testbed"}}
"""where the images of SWE-bench and its like keep their Python"""
DIFF = re.compile(r"^diff --git a/(.+?) b/(.+)$", re.MULTILINE)


def suite_of(row: Mapping[str, Any], more: Mapping[str, Any]) -> Suite:
    """Return how a row's tests are run: what it says, else what its repository needs."""
    config = row.get("install_config")
    if isinstance(config, str):
        try:
            config = from_json(config) if config.strip() else None
        except ValueError as error:
            raise RowError("install_config is no JSON",
                           found=f"{row.get('instance_id')}: {error}") from error
    config = config if isinstance(config, Mapping) else {}
    framework = str(row.get("test_framework") or _of_parser(config.get("log_parser"))
                    or BY_REPO.get(str(row.get("repo") or "").lower(), "pytest"))
    if framework not in PARSERS:
        raise RowError("there is no parser for the logs of a row",
                       found=f"{row.get('instance_id')}: {framework}", allowed=", ".join(PARSERS))
    command = row.get("test_cmd") or config.get("test_cmd") or ""
    if isinstance(command, list | tuple):
        command = " && ".join(map(str, command))
    return Suite(framework, str(command), tuple(row.get("test_files") or ()),
                 path=str(more.get("path", "")),
                 env={**more.get("env", {}), **(row.get("test_env") or {})},
                 output=str(row.get("test_output") or ""))


def _of_parser(name: Any) -> str:
    """SWE-rebench and swebench name their parsers `parse_log_pytest`, `parse_log_pytest_v2`."""
    found = re.match(r"parse_log_([a-z]+)", str(name or ""))
    return {"gotest": "go", "js": "jest"}.get(found[1], found[1]) if found else ""


def command_of(instance: Instance) -> str:
    """Return the shell command that runs an instance's tests."""
    suite = instance.suite
    command = suite.command or COMMANDS[suite.framework]
    if instance.by_exit_code or instance.expected:
        return command
    files = " ".join(map(_quoted, files_of(instance)))
    return command.replace("{files}", files) if "{files}" in command else f"{command} {files}"


def files_of(instance: Instance) -> list[str]:
    """Return what the command is told to test."""
    suite = instance.suite
    if suite.files:
        return list(suite.files)
    if suite.framework in ("go", "cargo"):
        return []
    touched = paths_in(instance.test_patch)
    if suite.framework == "django":
        return sorted({_label(p) for p in touched if p.endswith(".py")})
    named = {id.split("::", 1)[0] for id in _ids(instance) if "::" in id}
    return sorted({p for p in touched if _is_code(p)} or named)


def paths_of_tests(instance: Instance) -> set[str]:
    """Return the files that the evaluation's tests are: those of the patch and those of ids."""
    named = {id.split("::", 1)[0] for id in (*_ids(instance), *instance.expected) if "::" in id}
    return {*paths_in(instance.test_patch), *named, *(f for f in instance.suite.files if "." in f)}


def paths_in(patch: str) -> list[str]:
    """Return the paths that a diff of our own rows names."""
    return list(dict.fromkeys(p for pair in DIFF.findall(patch) for p in pair))


def _ids(instance: Instance) -> Iterable[str]:
    return (*instance.fail_to_pass, *instance.pass_to_pass)


def _label(path: str) -> str:
    """tests/admin_docs/test_views.py -> admin_docs.test_views, as Django's runner wants it."""
    return path.removeprefix("tests/").removesuffix(".py").replace("/", ".")


def _is_code(path: str) -> bool:
    return path.endswith((".py", ".js", ".jsx", ".ts", ".tsx", ".mjs", ".cjs", ".vue"))


def _quoted(word: str) -> str:
    import shlex

    return shlex.quote(word)
