"""Rows of every family in their own schema, recorded, and read without a network."""

import json
from pathlib import Path
from typing import Any

import pytest
from claw_env_swe import families, rows, tasks
from claw_env_swe.commands import command_of, paths_of_tests
from claw_env_swe.settings import SweConfig

from claw.sdk import UsageError

ROWS = [json.loads(line) for line in (Path(__file__).parent / "rows.jsonl").open()]


def of(family: str, number: int = 0) -> dict[str, Any]:
    return dict([r for r in ROWS if r["_is"] == family][number])


@pytest.mark.parametrize("row", ROWS, ids=lambda r: r["_is"])
def test_a_row_tells_its_family_by_its_columns(row: dict[str, Any]) -> None:
    assert families.family_of(row) == row["_is"]
    assert families.read(row).family == row["_is"]


@pytest.mark.parametrize(("family", "image"), [
    ("swe-bench", "docker.io/swebench/sweb.eval.x86_64.django_1776_django-11099:latest"),
    ("swe-gym", "xingyaoww/sweb.eval.x86_64.getmoto_s_moto-5752"),
    ("swe-smith", "jyangballin/swesmith.x86_64.oauthlib_1776_oauthlib.1fd52536"),
    ("r2e-gym", "namanjain12/pillow_final:2bd4df35e8a4"),
    ("swe-rebench", "swerebench/sweb.eval.x86_64.0b01001001_1776_spectree-64"),
    ("slime", "registry.example/code:17"),
])
def test_each_family_finds_its_image(family: str, image: str) -> None:
    assert families.read(of(family)).image == image


def test_image_name_comes_before_docker_image_and_both_before_a_derived_name() -> None:
    row = of("swe-bench") | {"image_name": "one", "docker_image": "two"}
    assert families.read(row, family="swe-bench").image == "one"
    row["image_name"] = ""
    assert families.read(row, family="swe-bench").image == "two"


def test_tests_are_a_json_string_or_a_list() -> None:
    read = families.read(of("swe-bench"))
    assert read.fail_to_pass[0].startswith("test_ascii_validator (auth_tests")
    assert len(read.fail_to_pass) == 2 and len(read.pass_to_pass) == 1
    listed = of("swe-bench") | {"FAIL_TO_PASS": ["a"], "PASS_TO_PASS": None}
    assert families.read(listed).fail_to_pass == ("a",)


def test_django_is_tested_by_its_own_runner_with_labels() -> None:
    read = families.read(of("swe-bench"))
    assert read.suite.framework == "django"
    assert command_of(read).endswith("--parallel 1 auth_tests.test_validators")


def test_a_patch_of_swe_smith_makes_the_defect_and_a_missing_problem_gets_words() -> None:
    read = families.read(of("swe-smith"))
    assert read.defect.startswith("diff --git") and read.gold == "" and read.has_gold
    assert "Find the defect" in read.problem
    assert command_of(read).endswith("tests/test_common.py")


def test_r2e_gym_has_a_map_an_issue_and_a_gold_patch_without_its_tests() -> None:
    read = families.read(of("r2e-gym"))
    assert read.expected == {"TestImage.test_a": "PASSED", "TestImage.test_b": "FAILED"}
    assert read.problem == "**Title:** Image is wrong"
    assert "-a = 1\n+a = 2\n" in read.gold and "Tests/" not in read.gold
    assert "/root/r2e_tests" in read.hidden
    assert command_of(read) == "bash /root/run_tests.sh"


def test_swe_rebench_brings_its_own_command() -> None:
    read = families.read(of("swe-rebench"))
    assert command_of(read) == ("pytest --no-header -rA --tb=line --color=no -p no:cacheprovider "
                                "tests/common.py tests/test_utils.py")


def test_slime_evaluates_by_a_command_or_by_a_script() -> None:
    first, second = families.read(of("slime")), families.read(of("slime", 1))
    assert first.by_exit_code and command_of(first) == "pytest -q tests/test_p.py"
    assert (first.workdir, first.setup) == ("/repo", ("git config user.name x",))
    assert first.problem == "The parser drops the last line" and second.problem == "Mend the lexer"
    assert "sys.exit(pytest.main(['-q']))" in command_of(second)


@pytest.mark.parametrize(("change", "says"), [
    ({"FAIL_TO_PASS": "[]"}, "without FAIL_TO_PASS"), ({"FAIL_TO_PASS": "{"}, "JSON string"),
    ({"FAIL_TO_PASS": {"a": 1}}, "no list of tests"), ({"FAIL_TO_PASS": [1]}, "no list of tests"),
    ({"problem_statement": None, "instance_id": None}, ""),
])
def test_a_row_that_decides_nothing_is_refused(change: dict[str, Any], says: str) -> None:
    row = of("swe-bench") | change
    if row["instance_id"] is None:
        del row["problem_statement"]
        says = "'problem_statement'"
    with pytest.raises(UsageError, match=says):
        families.read(row)


def test_a_row_of_no_family_names_its_columns() -> None:
    with pytest.raises(UsageError, match="columns answer, question"):
        families.read({"question": "?", "answer": "!"})


def test_the_tests_of_an_instance_are_those_of_patch_and_ids() -> None:
    assert paths_of_tests(families.read(of("swe-rebench"))) == {"tests/common.py",
                                                            "tests/test_utils.py"}


def write(path: Path, made: list[dict[str, Any]]) -> SweConfig:
    path.write_text("".join(json.dumps(r) + "\n" for r in made))
    return SweConfig(instances=str(path), eval_share=0.0)


def test_a_file_of_rows_becomes_tasks_whose_answer_is_private(tmp_path: Path) -> None:
    config = write(tmp_path / "all.jsonl", ROWS)
    made = list(tasks.of_split(config, "train"))
    assert len(made) == len(ROWS)
    for task, row in zip(made, ROWS, strict=True):
        assert tasks.instance_of(task) == families.read(row)
        assert "diff --git" not in json.dumps([task.messages, task.metadata])


def test_a_wrong_row_is_told_with_its_place(tmp_path: Path) -> None:
    config = write(tmp_path / "all.jsonl", [of("swe-gym"), of("swe-bench") | {"FAIL_TO_PASS": []}])
    with pytest.raises(UsageError, match=r"all\.jsonl:2"):
        tasks.of_split(config, "train")
    config = write(tmp_path / "all.jsonl", [of("swe-gym"), of("swe-gym")])
    with pytest.raises(UsageError, match="two rows have one id"):
        tasks.of_split(config, "train")


def test_only_and_skip_choose_and_a_wrong_id_is_an_error(tmp_path: Path) -> None:
    write(tmp_path / "all.jsonl", ROWS)
    where = {"instances": str(tmp_path / "all.jsonl"), "eval_share": 0.0}
    got = tasks.of_split(SweConfig(**where, only=("task-17",)), "train")
    assert [t.id for t in got] == ["task-17"]
    left = list(tasks.of_split(SweConfig(**where, skip=("task-17",)), "train"))
    assert len(left) == len(ROWS) - 1
    with pytest.raises(UsageError, match="no such instance"):
        tasks.of_split(SweConfig(**where, only=("task-71",)), "train")


def test_splits_share_nothing_when_a_share_is_kept(tmp_path: Path) -> None:
    many = [of("swe-gym") | {"instance_id": f"a__b-{i}"} for i in range(40)]
    config = write(tmp_path / "all.jsonl", many).model_copy(update={"eval_share": 0.5})
    train, held = ({t.id for t in tasks.of_split(config, s)} for s in ("train", "eval"))
    assert train and held and not train & held and len(train | held) == 40


def test_parquet_and_json_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps([of("swe-gym")]))
    assert [r for _, r in rows.read(str(tmp_path / "a.json"), "test")] == [of("swe-gym")]
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.Table.from_pylist([of("swe-gym"), of("swe-gym")]),
                        tmp_path / "a.parquet")
    [(where, row), _] = rows.read(str(tmp_path / "a.parquet"), "test")
    assert where.endswith("row 1") and families.read(row) == families.read(of("swe-gym"))


def test_a_name_of_datasets_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("datasets")
    folder = tmp_path / "org" / "name"
    folder.mkdir(parents=True)
    (folder / "test.jsonl").write_text(json.dumps(of("swe-gym")) + "\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    [(_, row)] = rows.read("datasets:org/name", "test")
    assert families.read(row).id == "getmoto__moto-5752"
    with pytest.raises(UsageError, match="cannot be had"):
        list(rows.read("datasets:org/name", "nothing"))


def test_a_file_that_is_no_rows_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("[1]\n")
    for name in ("a.jsonl", "none.jsonl", "a.csv"):
        with pytest.raises(UsageError):
            list(rows.read(str(tmp_path / name), "test"))
    assert tasks.of_path(tmp_path, SweConfig()) is None


def test_a_limit_of_cost_needs_a_price() -> None:
    with pytest.raises(ValueError, match="max_cost needs"):
        SweConfig(max_cost=1.0)


@pytest.mark.parametrize(("family", "column", "value"), [
    ("r2e-gym", "parsed_commit_content", {"file_diffs": [[]]}), ("swe-bench", "repo", [[]]),
    ("swe-bench", "FAIL_TO_PASS", "[" * 3000), ("swe-rebench", "install_config", "{"),
    ("swe-bench", "test_env", 5), ("swe-bench", "instance_id", ""),
])
def test_a_column_of_another_kind_is_refused_by_name(
    family: str, column: str, value: Any
) -> None:
    row = of(family) | {column: value}
    with pytest.raises(UsageError) as error:
        read = families.read(row, family="auto" if column == "repo" else family)
        assert column == "repo" and read.family == "swe-bench", "a list is no repository's name"
        raise UsageError("read")
    assert str(error.value)


def test_a_row_that_is_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"instance_id": ' + "[" * 3000)
    with pytest.raises(UsageError, match="no JSON"):
        tasks.of_path(path, SweConfig())
