"""An encrypted journal: no word of it can be read without the key, and each mismatch has a name."""

import json
import os
import sys
from pathlib import Path

import pytest

from claw import config as settings
from claw.engine import cipher
from claw.engine.actor.journal import Journal
from claw.engine.actor.store import NAME
from claw.engine.launch import Launcher
from claw.engine.rundir import RunDir
from claw.errors import ClawError, UsageError
from claw.records import Trace

pytestmark = pytest.mark.usefixtures("needs_sqlcipher")
WORD = "swordfish"


@pytest.fixture
def key(tmp_path: Path) -> str:
    return str(cipher.make_key(tmp_path / "keys"))


def said(run: Path, key_file: str) -> Journal:
    """A journal that holds a word, still open: the word is in its log."""
    journal = Journal(run, key_file=key_file)
    journal.put_trace(Trace(f"trace-{WORD}", "default", "personal"))
    journal.put_event("note", "x", f"the {WORD} is here")
    return journal


def files_with(word: str, folder: Path) -> list[str]:
    found = (p for p in folder.rglob("*") if p.is_file() and word.encode() in p.read_bytes())
    return sorted(p.name for p in found)


def test_no_word_is_in_the_database_or_its_log(tmp_path: Path, key: str) -> None:
    plain, locked = tmp_path / "plain", tmp_path / "locked"
    for run, key_file in ((plain, ""), (locked, key)):
        journal = said(run, key_file)
        assert (run / f"{NAME}-wal").stat().st_size > 0
        assert files_with(WORD, run) == ([] if key_file else [f"{NAME}-wal"])
        journal.close()
        assert files_with(WORD, run) == ([] if key_file else [NAME])
    again = Journal(locked, key_file=key, read_only=True)
    assert again.trace(f"trace-{WORD}") is not None


def test_a_full_disk_has_the_same_name_with_a_key(tmp_path: Path, key: str) -> None:
    journal = said(tmp_path / "run", key)
    [[pages]] = journal.read("PRAGMA page_count")
    journal.read(f"PRAGMA max_page_count = {pages + 1}")
    with pytest.raises(ClawError, match="nothing new is accepted"):
        journal.put_event("note", "x", "y" * 100_000)


def test_a_reader_finds_the_key_by_the_settings_in_the_run_folder(tmp_path: Path, key: str) -> None:
    run = RunDir.create(settings.parse({
        "runs": str(tmp_path), "name": "r", "journal": {"key_file": key}}))
    said(run.path, key).close()
    journal = Journal(run.path, read_only=True)
    assert journal.trace(f"trace-{WORD}") is not None


@pytest.mark.parametrize(("made_with", "opened_with", "words"), [
    ("key", "", "it is encrypted, or damaged"), ("", "key", "not encrypted, but a key is set"),
    ("key", "other", "does not open the journal"),
])
def test_a_key_that_does_not_fit_is_refused_before_anything_starts(
    tmp_path: Path, key: str, made_with: str, opened_with: str, words: str
) -> None:
    keys = {"": "", "key": key, "other": str(cipher.make_key(tmp_path / "others"))}
    config = settings.parse({"runs": str(tmp_path), "name": "r",
                             "journal": {"key_file": keys[opened_with]}})
    run = RunDir.create(config)
    said(run.path, keys[made_with]).close()
    with pytest.raises(UsageError, match=words) as caught:
        Launcher(config, run, tmp_path)
    assert caught.value.found and caught.value.allowed and caught.value.do
    with pytest.raises(UsageError, match=words):
        Journal(run.path, read_only=True)


def test_a_key_that_cannot_be_used_leaves_no_run_folder(tmp_path: Path, key: str) -> None:
    short = tmp_path / "short"
    short.touch(mode=0o600)
    short.write_text("abc")
    open_to_all = tmp_path / "open"
    open_to_all.write_text(Path(key).read_text())
    open_to_all.chmod(0o644)
    for file, words in ((tmp_path / "none", "cannot be read"), (short, "not a key of a journal"),
                        (open_to_all, "readable by others")):
        config = settings.parse({
            "runs": str(tmp_path / "runs"), "journal": {"key_file": str(file)}})
        with pytest.raises(UsageError, match=words):
            RunDir.create(config)
    assert not (tmp_path / "runs").exists()


def test_without_the_package_it_says_what_to_install(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sqlcipher3.dbapi2", None)
    with pytest.raises(UsageError, match=r"claw-rl\[encrypted\]"):
        cipher.check(key)


def test_a_key_is_private_random_and_never_written_over(tmp_path: Path, key: str) -> None:
    other = cipher.make_key(tmp_path / "second")
    assert Path(key).stat().st_mode & 0o777 == 0o600
    assert cipher.read_key(key) != cipher.read_key(str(other)) and len(cipher.read_key(key)) == 64
    with pytest.raises(UsageError, match="there is a key already"):
        cipher.make_key(tmp_path / "second")


def test_a_relative_path_is_kept_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = settings.parse({"journal": {"key_file": "keys/journal.key"}})
    assert config.journal.key_file == os.path.join(tmp_path, "keys", "journal.key")
    assert json.dumps(settings.resolved(config)["journal"]) == json.dumps(
        {"key_file": f"{tmp_path}/keys/journal.key"})
