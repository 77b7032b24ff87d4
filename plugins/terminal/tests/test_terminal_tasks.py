"""Where tasks come from, and that each can be solved and is not solved by doing nothing."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from claw_env_terminal import generator
from claw_env_terminal.generator import families
from claw_env_terminal.generator.recipe import CHECKER, Recipe
from claw_env_terminal.settings import TerminalConfig
from claw_env_terminal.tasks import SHIPPED, of_path, of_split

from claw.sdk import registry
from claw.sdk.formats import folder
from claw.sdk.formats.folder import FormatError
from claw.sdk.testing import Proof, prove

WRONG = Path(__file__).parent / "wrong"
NAMES = sorted(p.name for p in SHIPPED.iterdir())
IMAGE = "claw/base:bookworm"


def prove_all(settings: dict[str, Any], split: str = "train") -> list[Proof]:
    plugin = registry.load("terminal")
    config = plugin.settings(settings)
    tasks = list(plugin.hook.claw_tasks(config=config, split=split))

    async def all_of_them() -> list[Proof]:
        room = asyncio.Semaphore(4)

        async def one(task: Any) -> Proof:
            async with room:
                return await prove(plugin, config, task)

        return await asyncio.gather(*map(one, tasks))

    return asyncio.run(all_of_them())


@pytest.mark.slow
@pytest.mark.real
def test_every_shipped_task_is_solved_by_its_solution_and_not_by_nothing(
    needs_docker: None,
) -> None:
    proofs = prove_all({"tasks": "shipped", "outcome": "fraction"})
    assert len(proofs) >= 12
    assert {(p.gold, p.empty, p.problem) for p in proofs} == {(1.0, 0.0, "")}


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_attempt_at_a_shipped_task_gets_less_than_all(
    name: str, episode: Callable[..., Any], run: Callable[..., str]
) -> None:
    env = episode(SHIPPED / name)
    run(env, (WRONG / f"{name}.sh").read_text())
    assert env.grade().fraction < 1.0 and not env.grade().is_solved


@pytest.mark.slow
@pytest.mark.real
def test_every_family_is_solved_by_its_solution_and_not_by_nothing(needs_docker: None) -> None:
    proofs = prove_all({"eval_tasks": 2 * len(families.TABLE), "outcome": "fraction"}, "eval")
    assert [p for p in proofs if (p.gold, p.empty, p.problem) != (1.0, 0.0, "")] == []


def test_shipped_tasks_run_on_the_base_image_without_network() -> None:
    for path in folder.find(SHIPPED):
        read = folder.read(path)
        read.refuse_unsupported()
        assert read.network == "none" and read.notes == (), path
        if read.build_folder is not None:
            dockerfile = (read.build_folder / "Dockerfile").read_text()
            assert dockerfile.startswith(f"FROM {IMAGE}\n")
        assert read.tests["check.py"] == CHECKER.read_bytes(), "the checker is the same everywhere"


def test_every_shipped_task_has_a_wrong_attempt() -> None:
    assert {p.stem for p in WRONG.iterdir()} == set(NAMES)


def test_a_recipe_makes_the_same_task_each_time() -> None:
    for index in range(2 * len(families.TABLE)):
        recipe = Recipe(7, "train", index)
        again = Recipe.from_dict(recipe.as_dict())
        assert generator.make(recipe, IMAGE) == generator.make(again, IMAGE)


def test_train_and_eval_share_no_task() -> None:
    def made(split: str, seed: int = 0) -> set[tuple[str, str]]:
        tasks = (generator.make(Recipe(seed, split, i), IMAGE) for i in range(200))
        return {(t.instruction, t.tests["checks.json"].decode()) for t in tasks}

    assert not made("train") & made("eval")
    assert made("train") != made("train", seed=1)


def test_families_and_levels_are_chosen() -> None:
    config = TerminalConfig(level=1, train_tasks=40)
    easy = {t.metadata["family"] for t in of_split(config, "train")}
    assert easy == {n for n, f in families.TABLE.items() if f.level == 1}
    one = TerminalConfig(families=("sum_column",), train_tasks=5)
    assert {t.metadata["family"] for t in of_split(one, "train")} == {"sum_column"}
    with pytest.raises(FormatError, match="no such family"):
        list(of_split(TerminalConfig(families=("sum_colum",)), "train"))
    with pytest.raises(FormatError, match="no family of tasks is left"):
        list(of_split(TerminalConfig(families=("sum_column",), level=1), "train"))


def test_no_task_tells_the_policy_its_checks() -> None:
    for task in of_split(TerminalConfig(train_tasks=len(families.TABLE)), "train"):
        said = " ".join(str(m["content"]) for m in task.messages)
        assert "checks.json" not in said and task.answer is None


def test_a_folder_is_split_by_name_and_stays_so() -> None:
    every = {t.id for t in of_split(TerminalConfig(tasks="shipped"), "train")}
    halves = [{t.id for t in of_split(TerminalConfig(tasks="shipped", eval_share=0.3), split)}
              for split in ("train", "eval")]
    assert halves[0] | halves[1] == every and not halves[0] & halves[1] and all(halves)
    assert {t.id for t in of_split(TerminalConfig(tasks="shipped"), "eval")} == every


def test_unsupported_folders_are_refused_before_the_first_task(
    folder: Callable[..., Path], tmp_path: Path
) -> None:
    folder()
    bad = folder(more="environment_mode = 'separate'")
    with pytest.raises(FormatError, match="environment_mode"):
        of_split(TerminalConfig(tasks=str(tmp_path)), "train")
    (bad / "task.toml").write_text((bad / "task.toml").read_text().replace(
        "environment_mode = 'separate'", ""))
    assert len(list(of_split(TerminalConfig(tasks=str(tmp_path)), "train"))) == 2


def test_what_is_no_task_folder_is_left_to_other_plugins(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("{}")
    assert of_path(tmp_path, TerminalConfig()) is None
    assert of_path(tmp_path / "rows.jsonl", TerminalConfig()) is None


def test_images_are_built_only_where_it_is_allowed() -> None:
    with pytest.raises(FormatError, match="has to be built"):
        of_split(TerminalConfig(tasks="shipped", build=False), "train")
