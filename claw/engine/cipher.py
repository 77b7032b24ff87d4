"""The key of an encrypted journal, and opening a database with it or without.

Owns: the key file, which of the two SQLite libraries a journal needs, refusals by name.
Does not own: what is written (actor/store), whether a run is encrypted (`journal.key_file`).

The encryption is SQLCipher's: AES-256 of every page with an HMAC, of the database, its log and the
index of that. The key is 32 random bytes, so there is no password to be guessed.
"""

import importlib
import json
import os
import secrets
import sqlite3
import stat
from pathlib import Path
from typing import Any

from claw.errors import UsageError

KEY = "journal.key"
KEY_BYTES = 32
PLAIN = b"SQLite format 3\0"
"""how a database begins that is not encrypted"""
TIMEOUT_S = 10
INSTALL = "pip install 'claw-rl[encrypted]'"


def make_key(folder: Path) -> Path:
    """Write a new key (mode 600) into a folder. UsageError: there is one, and it may be in use."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    file = folder / KEY
    try:
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise UsageError("there is a key already", found=str(file), do="name another folder; "
                         "without its key no encrypted journal can be read") from None
    with os.fdopen(handle, "w") as out:
        out.write(secrets.token_hex(KEY_BYTES))
    return file


def read_key(key_file: str) -> str:
    """Return the key of a file, as hexadecimal digits. UsageError: missing, open to others, bad."""
    file = Path(key_file)
    try:
        if file.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise UsageError("the journal's key is readable by others", found=key_file,
                             allowed="mode 600", do=f"chmod 600 {key_file}")
        with file.open("rb") as source:
            text = source.read(4 * KEY_BYTES).decode("ascii", "replace").strip()
    except OSError as error:
        raise UsageError(
            "the journal's key cannot be read", found=f"{key_file}: {error.strerror}",
            allowed="the file that claw keys --journal made",
            do="bring it back, or say in journal.key_file of the run's config.json where it is",
        ) from error
    if len(text) != 2 * KEY_BYTES or not set(text) <= set("0123456789abcdef"):
        raise UsageError("not a key of a journal", found=key_file,
                         allowed=f"{2 * KEY_BYTES} hexadecimal digits",
                         do="make one: claw keys FOLDER --journal")
    return text


def check(key_file: str) -> None:
    """UsageError where a journal cannot be encrypted as the settings ask. "": it is not asked."""
    if key_file:
        read_key(key_file)
        library(key_file)


def key_file_of(run_dir: Path) -> str:
    """Return what the settings of a run folder name; "" where there are none."""
    try:
        values = json.loads((run_dir / "config.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return ""
    return str(values.get("journal", {}).get("key_file") or "")


def library(key_file: str) -> Any:
    """Return the module to open a journal with: Python's own, or the one of SQLCipher."""
    if not key_file:
        return sqlite3
    try:
        return importlib.import_module("sqlcipher3.dbapi2")
    except ImportError as error:
        raise UsageError("an encrypted journal needs a package that is not installed",
                         found=f"journal.key_file = {key_file}: {error}",
                         allowed="sqlcipher3", do=INSTALL) from error


def connect(path: Path, key_file: str, *, read_only: bool) -> Any:
    """Open a database. UsageError: it is encrypted and no key is named, or the other way round."""
    key, sql = read_key(key_file) if key_file else "", library(key_file)
    _check_kind(path, key_file)
    where = f"{path.resolve().as_uri()}?mode={'ro' if read_only else 'rwc'}"
    db = sql.connect(where, uri=True, timeout=TIMEOUT_S, check_same_thread=False,
                     isolation_level=None)
    if not key:
        return db
    db.execute(f"PRAGMA key = \"x'{key}'\"")  # digits only: see read_key
    db.execute("PRAGMA temp_store = MEMORY")
    try:
        db.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
    except sql.DatabaseError as error:
        db.close()
        if "not a database" not in str(error):
            raise
        raise UsageError(
            "the key does not open the journal", found=f"{key_file} for {path}",
            allowed="the key that the run was begun with",
            do="say in journal.key_file of the run's config.json where that is",
        ) from error
    return db


def _check_kind(path: Path, key_file: str) -> None:
    try:
        with path.open("rb") as source:
            begins = source.read(len(PLAIN))
    except FileNotFoundError:
        return
    if begins and key_file and begins == PLAIN:
        raise UsageError(
            "the journal is not encrypted, but a key is set", found=f"{key_file} for {path}",
            allowed="journal.key_file in a run that begins with it",
            do="begin a new run with the key, or remove journal.key_file from config.json",
        )
    if len(begins) == len(PLAIN) and not key_file and begins != PLAIN:
        raise UsageError(
            "the journal cannot be read: it is encrypted, or damaged", found=str(path),
            allowed="a journal as SQLite writes it, or a key that opens it",
            do="say in journal.key_file of the run's config.json where its key is",
        )
