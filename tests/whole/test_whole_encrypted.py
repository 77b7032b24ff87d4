"""A run with an encrypted journal: no word is in any file, and the commands work with the key."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from system import System, until
from talk import CORRECTION, ask
from tokenizers import Tokenizer

from claw.engine import cipher

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400),
              pytest.mark.usefixtures("needs_sqlcipher")]
WORD = "Xylophonbauer"


@pytest.fixture
def system(whole_model: Path, tmp_path: Path) -> Iterator[System]:
    made = System(tmp_path, whole_model, "train.max_wait_s=0.5",
                  f"journal.key_file='{cipher.make_key(tmp_path / 'keys')}'")
    with tempfile.TemporaryDirectory(prefix="ce-") as temporary:  # short: sockets lie in it
        made.extra = {"TMPDIR": temporary}
        try:
            yield made.start()
        finally:
            made.stop()


def traces_of(word: str, model: Path, *folders: Path) -> list[str]:
    """Files that hold a word as text, as JSON, or as the ids of its tokens."""
    ids = Tokenizer.from_file(str(model / "tokenizer.json")).encode(word).ids
    forms = [word.encode(), word.encode("utf-16-le"), ", ".join(map(str, ids)).encode(),
             ",".join(map(str, ids)).encode()]
    forms += [np.array(ids, kind).tobytes() for kind in ("<i4", "<i8")]
    files = (p for folder in folders for p in folder.rglob("*") if p.is_file())
    return [str(file) for file in files if any(form in file.read_bytes() for form in forms)]


def test_no_word_is_in_any_file_of_an_encrypted_run(system: System, whole_model: Path) -> None:
    messages = [{"role": "user", "content": f"Who is the {WORD}?"}]
    first = ask(system.client(), messages)
    messages.append({"role": "user", "content": f"{CORRECTION} About the {WORD}."})
    ask(system.client(), messages)
    assert until(lambda: system.rows(
        "SELECT state FROM turns WHERE id=?", first.turn_id) == [("trained",)], 90, 0.5)
    assert _says(system)
    where = (system.run, Path(system.extra["TMPDIR"]))
    assert (system.run / "journal.sqlite-wal").stat().st_size > 0
    assert traces_of(WORD, whole_model, *where) == []

    run = ("--run", str(system.run))
    assert WORD in system.claw("why", first.turn_id, *run).stdout
    assert "v1" in system.claw("versions", *run).stdout
    system.stop()
    assert traces_of(WORD, whole_model, *where) == []
    _a_key_that_does_not_fit_is_refused(system)
    assert WORD in system.claw("why", first.turn_id, *run).stdout
    assert system.claw("forget", first.turn_id, "--yes", *run).returncode == 0
    assert not _says(system)


def _says(system: System) -> bool:
    """Whether who has the key finds the word."""
    return WORD in json.dumps(system.rows("SELECT body FROM texts"))


def _a_key_that_does_not_fit_is_refused(system: System) -> None:
    """Nothing starts, whatever is asked."""
    file = system.run / "config.json"
    settings = json.loads(file.read_text())
    right = settings["journal"]["key_file"]
    for wrong, words in ((str(cipher.make_key(system.runs / "others")), "does not open"),
                         ("", "it is encrypted")):
        file.write_text(json.dumps(settings | {"journal": {"key_file": wrong}}))
        for command in (("train", "--resume", str(system.run)),
                        ("versions", "--run", str(system.run))):
            done = system.claw(*command)
            assert done.returncode == 2 and words in done.stderr, (command, done.stderr)
    file.write_text(json.dumps(settings | {"journal": {"key_file": right}}))
    assert not system.processes()
