"""What `claw doctor` says of SGLang's environment."""

import json
import sys
from pathlib import Path

import pytest

from claw.engine import environment

GOOD = {"sglang": "0.5.23", "torch": "2.14.1", "transformers": "5.19.0", "claw-rl": "0.1.0",
        "pyzmq": "27.3.0", "msgpack": "1.2.4", "safetensors": "0.8.0", "plugin": True}


def python_that_says(folder: Path, text: str) -> str:
    script = folder / "python"
    script.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\n")
    script.chmod(0o755)
    return str(script)


@pytest.mark.parametrize(("change", "words"), [
    ({}, "as it should be"), ({"sglang": "0.4.0"}, "with 0.5.23 only"),
    ({"sglang": None}, "not installed"), ({"claw-rl": None}, "its claw is missing"),
    ({"claw-rl": "0.0.9"}, "its claw is 0.0.9"), ({"msgpack": None}, "msgpack missing"),
])
def test_an_environment_is_judged_by_what_is_in_it(change, words, tmp_path):
    said = "\n".join(environment.lines(python_that_says(tmp_path, json.dumps(GOOD | change))))
    assert words in said
    assert bool(change) == ("make sglang" in said)


def test_a_python_that_does_not_answer_is_named_with_what_to_do(tmp_path):
    said = next(environment.lines("/nowhere/python"))
    assert "/nowhere/python" in said and "make sglang" in said
    assert "no answer" in next(environment.lines(python_that_says(tmp_path, "hello")))


def test_a_real_python_is_asked(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    found, why = environment.ask(sys.executable)
    assert not why and found["pyzmq"] and found["sglang"] is None
