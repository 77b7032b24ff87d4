"""What stands in a settings file or on the command line is a run, or refused in words."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from some_json import NASTY, cut, one_of, text, value
from tried import Tried
from typer.testing import CliRunner

from claw import cli, config
from claw.errors import ClawError, UsageError

WHOLE = b"""\
model = "smollm2-135m"
seed = 3
[train]
lr = 1e-5
method = "hybrid"
[rollout]
temperature = 0.7
[is]
mode = "proximal"
[lora]
targets = ["q_proj", "v_proj"]
[plugin.personal]
cors_origin = "http://127.0.0.1:1"
[[plugin.x.list]]
when = 2024-02-20T10:00:00
"""
VALUES = ("1", "-1", "0", "1e-5", "nan", "inf", "-inf", "1e999", "true", "\"x\"", "x", "[]",
          "[1, 2]",
          "{a = 1}", "{}", "2024-13-45", "07:32:00", "'''", "\"\\ud800\"", "1" * 5000, "[" * 3000,
          "0x" + "f" * 40, "1\nb = 2", "# x", "\u0661", "=", "\x00", "9" * 30)
SECTIONS = [(name if f.alias is None else f.alias, f.default)
            for name, f in config.RunConfig.model_fields.items()]
KEYS = [name if not isinstance(default, config.Section) else f"{name}.{inner}"
        for name, default in SECTIONS
        for inner in (type(default).model_fields if isinstance(default, config.Section) else ("",))]


def check_run(run: config.RunConfig) -> None:
    """A run that was accepted comes back from what the processes are given of it."""
    spec = json.dumps(config.resolved(run), allow_nan=False)
    assert config.parse(json.loads(spec)) == run


def check_refusal(error: UsageError) -> None:
    assert error.exit_code == 2 and 0 < len(str(error)) < 20_000
    str(error).encode("utf-8", "surrogatepass")


def test_a_settings_file_is_a_run_or_refused(tried: Tried, tmp_path: Path) -> None:
    path = tmp_path / "run.toml"

    def check(written: bytes) -> None:
        path.write_bytes(written)
        try:
            check_run(config.load(path))
        except UsageError as error:
            check_refusal(error)

    def make(random: Random) -> bytes:
        lines = [f"{random.choice(KEYS)} = {random.choice(VALUES)}"
                 for _ in range(random.choice((1, 1, 2)))]
        return one_of(random, lambda r: cut(r, WHOLE), lambda r: r.randbytes(r.randrange(40)),
                      lambda r: "\n".join(lines).encode("utf-8", "surrogatepass"))

    tried(check, make, 100)


def test_overrides_are_a_run_or_refused(tried: Tried) -> None:
    def make(random: Random) -> tuple[str, ...]:
        def one() -> str:
            key = random.choice((random.choice(KEYS), random.choice(KEYS), text(random)))
            if random.random() < 0.2:
                key += random.choice((".", "..", ".x", " ", ".0", "=", f".{text(random)}"))
            said = random.choice((random.choice(VALUES), text(random), str(value(random))))
            return random.choice((f"{key}={said}", f"{key}={said}", key, f" {key} = {said}"))
        return tuple(one() for _ in range(random.randint(1, 3)))

    def check(overrides: tuple[str, ...]) -> None:
        try:
            check_run(config.load(None, overrides))
        except UsageError as error:
            check_refusal(error)

    tried(check, make, 150)


def test_plain_values_of_any_shape_are_a_run_or_refused(tried: Tried) -> None:
    def make(random: Random) -> Any:
        whole = config.resolved(config.RunConfig())
        for _ in range(random.randint(1, 2)):
            name = random.choice(list(whole))
            if isinstance(whole[name], dict) and whole[name] and random.random() < 0.7:
                whole[name][random.choice(list(whole[name]))] = value(random)
            else:
                whole[name] = value(random)
        return whole

    def check(values: Any) -> None:
        try:
            check_run(config.parse(values))
        except UsageError as error:
            check_refusal(error)

    tried(check, make, 50)


def test_the_command_line_says_what_is_wrong_and_shows_no_traceback(
    tried: Tried, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ("config", "show", "why", "turns", "versions", "rollback", "forget", "people", "add",
             "list", "remove", "judge", "audit", "export", "--run", "--plugin", "--help", "nothing",
             "env", "--owner", "-1", "2", ".", "train.lr=x", "a.b", *(n for n in NASTY if n))

    def make(random: Random) -> list[str]:
        return [random.choice(("config", "turns", "why", "people", "versions", "judge", "forget")),
                *(random.choice(words) for _ in range(random.randrange(4)))]

    def check(arguments: list[str]) -> None:
        done = CliRunner().invoke(cli.app, arguments)
        error = done.exception
        assert error is None or isinstance(error, SystemExit | ClawError), repr(error)

    tried(check, make, 50)
