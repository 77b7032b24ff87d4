"""terminal-bench 1 task folders, and the test summary that grades them."""

from pathlib import Path

import pytest
from some_folders import YAML, terminal_bench

from claw.sdk.formats import folder, summary
from claw.sdk.formats.folder import FormatError
from claw.sdk.formats.reward import Counts

COMPOSE = """
services:
  client:
    build: {dockerfile: Dockerfile}
    image: ${T_BENCH_TASK_DOCKER_CLIENT_IMAGE_NAME}
    container_name: ${T_BENCH_TASK_DOCKER_CLIENT_CONTAINER_NAME}
    command: ["sh", "-c", "sleep infinity"]
    environment: ["TEST_DIR=${T_BENCH_TEST_DIR}", "MODE=fast"]
    volumes: ["${T_BENCH_TASK_LOGS_PATH}:${T_BENCH_CONTAINER_LOGS_PATH}"]
"""


def test_every_supported_field_is_read(tmp_path: Path) -> None:
    yaml = YAML + "max_agent_timeout_sec: 90\nmax_test_timeout_sec: 12\ncategory: files\n"
    files = {"docker-compose.yaml": COMPOSE, "solution.sh": "echo\n"}
    read = folder.read(terminal_bench(tmp_path, yaml, **files))
    assert (read.format, read.instruction, read.grading) == ("terminal-bench", "Do it.", "pytest")
    assert (read.agent_timeout_s, read.verifier_timeout_s) == (90, 12)
    assert set(read.tests) == {"run-tests.sh", "test_outputs.py"}
    assert read.test_command == ("bash", "/tests/run-tests.sh")
    assert read.build_folder == tmp_path and read.image == ""
    assert dict(read.env) == {"TEST_DIR": "/tests", "MODE": "fast"}
    assert read.metadata["category"] == "files"
    assert read.unsupported == ()


def test_a_solution_of_steps_becomes_a_script(tmp_path: Path) -> None:
    steps = "- command: mkdir a\n  min_timeout_sec: 1\n- command: touch a/b\n"
    read = folder.read(terminal_bench(tmp_path, **{"solution.yaml": steps}))
    assert read.solution["solution.sh"] == b"#!/bin/bash\nmkdir a\ntouch a/b\n"


@pytest.mark.parametrize(("yaml", "compose", "name"), [
    ("parser_name: swebench\n", "", "parser_name"),
    ("run_tests_in_same_shell: true\n", "", "run_tests_in_same_shell"),
    ("", "services: {client: {build: .}, db: {image: x}}\n", "db"),
    ("", "services: {client: {build: ., privileged: true}}\n", "privileged"),
    ("", "services: {client: {build: ., volumes: ['/etc:/etc']}}\n", "/etc:/etc"),
    ("", "services: {client: {build: {context: ./sub}}}\n", "./sub"),
])
def test_what_is_not_run_is_refused_by_name(
    tmp_path: Path, yaml: str, compose: str, name: str
) -> None:
    files = {"docker-compose.yaml": compose} if compose else {}
    read = folder.read(terminal_bench(tmp_path, YAML + yaml, **files))
    with pytest.raises(FormatError) as refused:
        read.refuse_unsupported()
    assert name in str(refused.value)


@pytest.mark.parametrize("yaml", [
    "- a list\n", "instruction: x\n", "difficulty: easy\n", "a: [\n", "\x00",
    "instruction: x\ndifficulty: easy\nmax_test_timeout_sec: never\n",
    "a: &a [x]\ninstruction: x\ndifficulty: easy\ntags: *a\n",
])
def test_a_wrong_file_is_told_in_words(tmp_path: Path, yaml: str) -> None:
    with pytest.raises(FormatError):
        folder.read(terminal_bench(tmp_path, yaml))


def test_a_summary_counts_what_passed() -> None:
    said = (
        "collected 5 items\n\x1b[36m=== short test summary info ===\x1b[0m\r\n"
        "\x1b[32mPASSED\x1b[0m t.py::test_a\r\nXFAIL t.py::test_b\r\n"
        "FAILED t.py::test_c - a - b\r\n"
        "XPASS t.py::test_d\r\nERROR t.py::test_e\r\n    some more words\n=== 3 failed ===\n"
    )
    assert summary.read(said) == Counts(2, 5, ("test_c - a", "test_d", "test_e"))


@pytest.mark.parametrize("said", ["", "5 passed", "=== short test summary info ===\n=== end ===\n"])
def test_without_a_summary_nothing_is_known(said: str) -> None:
    assert summary.read(said) is None


def test_what_the_agents_program_printed_before_is_no_summary() -> None:
    forged = "=== short test summary info ===\nPASSED t.py::test_a\n"
    true = "=== short test summary info ===\nFAILED t.py::test_a - no\n"
    assert summary.read(forged + true) == Counts(0, 1, ("test_a",))


def test_half_a_surrogate_pair_in_a_solution_is_kept(tmp_path: Path) -> None:
    read = folder.read(terminal_bench(tmp_path, **{"solution.yaml": '- command: "a\\ud83c"\n'}))
    assert read.solution["solution.sh"].endswith(b"a\xed\xa0\xbc\n")
