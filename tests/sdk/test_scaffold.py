"""`claw plugin new`: names, files, and a plugin that works at once."""

import subprocess
import tomllib
from pathlib import Path

import pytest

from claw.errors import ClawError, UsageError
from claw.sdk.scaffold.names import Names
from claw.sdk.scaffold.write import write

STRANGE = "2 Fast--Ünïque_ENV!"


@pytest.mark.parametrize(("typed", "name", "env"), [
    ("My Env", "my-env", "MyEnv"), ("my_env", "my-env", "MyEnv"), ("MyEnv", "my-env", "MyEnv"),
    ("claw-env-word-games", "word-games", "WordGamesEnv"), ("class", "class", "ClassEnv"),
    (STRANGE, "2-fast-unique-env", "The2FastUniqueEnv"), ("env", "env", "EnvEnv"),
])
def test_names_follow_from_what_was_typed(typed, name, env):
    names = Names.of(typed)
    assert (names.name, names.of_class("Env")) == (name, env)
    assert names.distribution == f"claw-env-{name}"
    assert names.module == f"claw_env_{name.replace('-', '_')}"
    assert names.of_class("Env").isidentifier() and names.module.isidentifier()


@pytest.mark.parametrize("typed", ["", "日本", "../..", "x" * 41])
def test_what_gives_no_name_is_refused(typed):
    with pytest.raises(UsageError, match="not a name for a plugin"):
        Names.of(typed)


def files_of(folder: Path) -> set[str]:
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}


def test_exactly_these_files_are_written_and_no_mark_is_left(tmp_path):
    said = []
    folder = write(Names.of(STRANGE), tmp_path, say=said.append)
    module = "claw_env_2_fast_unique_env"
    assert files_of(folder) == {
        "pyproject.toml", "README.md", "LICENSE", ".gitignore", ".github/workflows/test.yml",
        f"{module}/__init__.py", f"{module}/env.py", f"{module}/tasks.py", f"{module}/judge.py",
        f"tests/test_{module}.py",
    }
    assert len(said) == 10 and all(line.startswith("write ") for line in said)
    for path in folder.rglob("*"):
        if path.is_file():
            left = [m for m in ("@NAME@", "@MODULE@", "@DIST@", "@ENV@", "@JUDGE@", "@CLAW@",
                                "@NEXT@") if m in path.read_text()]
            assert not left, path
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    assert project["name"] == "claw-env-2-fast-unique-env"
    assert project["entry-points"]["claw"] == {"2-fast-unique-env": module}


def test_what_is_there_is_not_overwritten_without_force(tmp_path):
    folder = write(Names.of("x"), tmp_path, say=lambda line: None)
    mine = folder / "claw_env_x" / "env.py"
    mine.write_text("mine")
    (folder / "notes.txt").write_text("mine too")
    with pytest.raises(UsageError, match="--force"):
        write(Names.of("x"), tmp_path, say=lambda line: None)
    assert mine.read_text() == "mine"
    write(Names.of("x"), tmp_path, force=True, say=lambda line: None)
    assert "class XEnv" in mine.read_text()
    assert (folder / "notes.txt").read_text() == "mine too"


def test_a_failure_takes_away_what_was_written(tmp_path):
    (tmp_path / "here").mkdir()

    def full(line):
        if "judge" in line:
            raise OSError(28, "No space left on device")

    with pytest.raises(ClawError, match="No space left"):
        write(Names.of("x"), tmp_path / "here" / "deep", say=full)
    assert list((tmp_path / "here").iterdir()) == []


def test_a_failure_with_force_puts_back_what_was_there(tmp_path):
    folder = write(Names.of("x"), tmp_path, say=lambda line: None)
    (folder / "README.md").write_text("mine")
    (folder / "LICENSE").unlink()

    def interrupt(line):
        if "judge" in line:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(Names.of("x"), tmp_path, force=True, say=interrupt)
    assert (folder / "README.md").read_text() == "mine"
    assert not (folder / "LICENSE").exists()


@pytest.mark.slow
def test_a_plugin_with_a_strange_name_works_in_a_fresh_environment(fresh_python, tmp_path):
    def run(*words: str) -> str:
        done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path,
                              env={"PATH": f"{fresh_python.parent}:/usr/bin:/bin"})
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    claw = str(fresh_python.parent / "claw")
    last = run(claw, "plugin", "new", STRANGE).splitlines()[-3:]
    assert last == [
        "pip install -e claw-env-2-fast-unique-env", "claw plugin check 2-fast-unique-env",
        "claw train --plugin 2-fast-unique-env",
    ]
    run(str(fresh_python), "-m", "pip", "install", "-q", "--no-build-isolation", "--no-deps",
        "-e", "claw-env-2-fast-unique-env")
    assert "14 passed" in run(str(fresh_python), "-m", "pytest", "claw-env-2-fast-unique-env")
    assert "passed" in run(claw, "plugin", "check", "2-fast-unique-env").splitlines()[-1]
    assert "36 tasks, 0 not proved" in run(claw, "env", "check", "2-fast-unique-env")
    code = "import importlib.util as u; print(u.find_spec('torch'), u.find_spec('transformers'))"
    assert run(str(fresh_python), "-c", code).strip() == "None None"
