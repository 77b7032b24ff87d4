"""The points at which a process can be made to die: each is in the code, and each happens once."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from claw.engine import faults
from claw.errors import UsageError

CODE = Path(faults.__file__).parent


def test_every_point_is_in_the_code_and_every_one_there_is_in_the_list() -> None:
    text = "\n".join(p.read_text() for p in CODE.rglob("*.py") if p.name != "faults.py")
    found = set(re.findall(r'faults\.at\("([^"]+)"\)', text))
    found |= {f"{name}.{when}" for name in re.findall(r'@faults\.around\("([^"]+)"\)', text)
              for when in ("before", "after")}
    assert found == set(faults.POINTS) and len(faults.POINTS) == len(set(faults.POINTS)) >= 40
    uses = re.findall(r"\bfaults\.(?:at|around)\(", text)
    assert len(uses) == len(re.findall(r'\bfaults\.(?:at|around)\("', text)), "a name that varies"


def test_a_point_kills_its_process_the_third_time_and_no_other_one(tmp_path: Path) -> None:
    code = ("from claw.engine import faults\n"
            "for i in range(5):\n    print(i, flush=True)\n    faults.at('trainer.ack.after')\n"
            "    faults.at('trainer.ack.before')\n")
    environment = {faults.ARM: "trainer.ack.before=kill:3", faults.FOLDER: str(tmp_path),
                   "PYTHONPATH": str(CODE.parents[1])}
    first, second = (subprocess.run([sys.executable, "-c", code], env=environment, check=False,
                                    capture_output=True, text=True) for _ in range(2))
    assert (first.returncode, first.stdout.split()) == (-9, ["0", "1", "2"])
    assert (second.returncode, second.stdout.split()) == (0, ["0", "1", "2", "3", "4"])
    assert [p.name for p in tmp_path.iterdir()] == ["trainer.ack.before"]


@pytest.mark.parametrize(("words", "said"), [
    ("trainer.akc.before=kill", "did you mean 'trainer.ack.before'"),
    ("trainer.ack.before=burn", "no such fault"), ("trainer.ack.before=kill:0", "no such fault"),
])
def test_what_cannot_happen_is_refused_by_name(words: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=said):
        faults.read(words, str(tmp_path))


def test_a_fault_needs_a_folder_to_be_noted_in(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no folder"):
        faults.read("trainer.ack.before=kill", str(tmp_path / "missing"))
    with pytest.raises(UsageError, match="no folder"):
        faults.read("trainer.ack.before=kill", "")


def test_nothing_armed_leaves_a_function_as_it_is() -> None:
    def function() -> None:
        pass

    assert faults.around("trainer.ack")(function) is function
