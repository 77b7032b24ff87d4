"""Tasks from JSONL files: our own rows, and the columns of DAPO, AIME and the like.

Owns: the names under which questions and answers are found; errors that name the line.
Does not own: comparing answers (`answers.check`).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from claw.sdk import Message, Task, UsageError
from claw.sdk.foreign_json import from_json

from ..answers.check import CHECKERS
from ..settings import ToolcallConfig

QUESTIONS = ("question", "problem", "Problem", "prompt")
ANSWERS = ("answer", "Answer", "label", "solution")
MAX_LINE = 1 << 20
"""bytes of one row"""


def tasks(config: ToolcallConfig, split: str) -> Iterator[Task]:
    """Yield the rows of a split, read as they are needed."""
    name = config.rows if split == "train" else config.eval_rows
    if not name:
        raise UsageError("there are no held-out rows", do="set plugin.toolcall.eval_rows")
    path = Path(name).expanduser()
    if not path.is_file():
        raise UsageError("no such file of rows", found=str(path))
    with path.open("rb") as file:
        for number in range(1, 1 << 62):
            line = file.readline(MAX_LINE + 1)
            if not line:
                return
            if line.strip():
                yield _task(config, line, f"{path}:{number}", f"{path.stem}-{number}")


def _task(config: ToolcallConfig, line: bytes, where: str, id: str) -> Task:
    if len(line) > MAX_LINE:
        raise _wrong(where, f"more than {MAX_LINE} bytes")
    try:
        row = from_json(line)
    except ValueError as error:
        raise _wrong(where, f"not JSON: {error}") from error
    if not isinstance(row, dict):
        raise _wrong(where, "not a JSON object")
    checker = str(row.get("checker") or config.checker).replace("auto", "math")
    if checker not in CHECKERS:
        raise _wrong(where, f"checker {checker!r}; there are {', '.join(CHECKERS)}")
    return Task(
        str(row.get("id") or id), _messages(row, where), metadata={"source": where},
        answer={"answer": _answer(row, where), "checker": checker},
    )


def _messages(row: dict[str, Any], where: str) -> tuple[Message, ...]:
    value = next((row[k] for k in QUESTIONS if row.get(k)), None)
    if isinstance(value, str):
        return ({"role": "user", "content": value},)
    if isinstance(value, list) and value and all(_is_message(m) for m in value):
        return tuple({"role": m["role"], "content": m["content"]} for m in value)
    raise _wrong(where, f"no question: text or messages under {', '.join(QUESTIONS)}")


def _is_message(value: Any) -> bool:
    return (isinstance(value, dict) and isinstance(value.get("content"), str)
            and value.get("role") in ("system", "user", "assistant"))


def _answer(row: dict[str, Any], where: str) -> str:
    paid = row.get("reward_model")  # DAPO and other verl rows
    given = [paid.get("ground_truth")] if isinstance(paid, dict) else []
    given += [row.get(name) for name in ANSWERS]
    for value in given:
        if isinstance(value, str | int | float) and not isinstance(value, bool) and value != "":
            return str(value)
    raise _wrong(where, f"no answer: text or a number under {', '.join(ANSWERS)}, "
                        "or reward_model.ground_truth")


def _wrong(where: str, why: str) -> UsageError:
    return UsageError("a row is no task", found=f"{where}: {why}")
