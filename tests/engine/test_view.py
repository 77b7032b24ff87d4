"""`claw view`: a folder of screens becomes one picture."""

import json
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from claw.cli import app
from claw.engine.view import write
from claw.errors import UsageError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "seen"
    made.mkdir()
    # 10 comes after 2: steps are numbers, not names
    for step, colour in ((0, "red"), (2, "green"), (10, "blue")):
        Image.new("RGB", (80, 50), colour).save(made / f"step_{step}.png")
    lines = [{"step_num": 2, "action": [{"kind": "write", "args": {"text": "ä 你"}}]},
             {"step_num": 10, "action": "pyautogui.click(1, 2)"}]
    (made / "traj.jsonl").write_text("\n".join(json.dumps(x) for x in lines) + "\n{cut")
    return made


def test_a_strip_holds_the_screens_in_order(folder: Path, tmp_path: Path) -> None:
    out = write(folder, tmp_path / "v.png", width=80, columns=2)
    picture = Image.open(out).convert("RGB")
    assert picture.size == (160, 2 * (50 + 18))
    places = [(40, 10), (120, 10), (40, 78)]
    assert [max(range(3), key=picture.getpixel(at).__getitem__) for at in places] == [0, 1, 2]


def test_an_animated_picture_has_a_frame_for_each_screen(folder: Path, tmp_path: Path) -> None:
    with Image.open(write(folder, tmp_path / "v.gif", width=80)) as picture:
        assert (picture.n_frames, picture.size) == (3, (80, 68))


def test_the_command_says_what_it_wrote_and_what_it_needs(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "made.png"
    done = CliRunner().invoke(app, ["view", str(folder), "--out", str(out), "--width", "80"])
    assert done.output.strip() == str(out) and out.exists()
    with pytest.raises(UsageError, match=r"step_0\.png"):
        write(tmp_path, out)
    with pytest.raises(UsageError, match=r"\.gif"):
        write(folder, tmp_path / "v.mp4")
