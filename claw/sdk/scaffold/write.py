"""Writes a new plugin into a folder: all of it, or nothing.

Owns: which template becomes which file, and undoing what was written when it fails.
Does not own: names (`names`), the text of the files (`files/`).
"""

from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

from claw.errors import ClawError, UsageError
from claw.sdk.scaffold.names import Names

PATHS = {
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    "LICENSE": "LICENSE",
    "gitignore": ".gitignore",
    "workflow.yml": ".github/workflows/test.yml",
    "init.py": "@MODULE@/__init__.py",
    "env.py": "@MODULE@/env.py",
    "tasks.py": "@MODULE@/tasks.py",
    "judge.py": "@MODULE@/judge.py",
    "test.py": "tests/test_@MODULE@.py",
}
"""template -> path in the new plugin"""


def write(
    names: Names, into: Path, *, force: bool = False, say: Callable[[str], None] = print
) -> Path:
    """Write the plugin into `into/claw-env-NAME`; return that folder.

    Files that are there are kept, or replaced with `force`; without it a folder that holds
    anything is refused. What was written or made is taken away again when something fails.
    """
    folder = into / names.distribution
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())) and not force:
        raise UsageError(
            "there is something already", found=str(folder), allowed="a new or empty folder",
            do="another name, or --force to replace the files of the template",
        )
    texts = {_filled(path, names): _filled(_template(name), names) for name, path in PATHS.items()}
    undo = _Undo()
    try:
        for path, text in texts.items():
            undo.write(folder / path, text)
            say(f"write {folder / path}")
    except OSError as error:
        undo.all()
        raise ClawError("the plugin could not be written; nothing was left behind",
                        found=str(error), do="see to it that the folder can be written") from error
    except BaseException:
        undo.all()
        raise
    return folder


class _Undo:
    """Remembers what a file was before it was written."""

    def __init__(self) -> None:
        self._files: list[tuple[Path, bytes | None]] = []
        self._folders: list[Path] = []

    def write(self, path: Path, text: str) -> None:
        self._make(path.parent)
        self._files.append((path, path.read_bytes() if path.exists() else None))
        path.write_text(text, encoding="utf-8")

    def _make(self, folder: Path) -> None:
        missing = [f for f in (folder, *folder.parents) if not f.exists()]
        for one in reversed(missing):
            one.mkdir()
            self._folders.append(one)

    def all(self) -> None:
        """Put everything back; what cannot be put back is left."""
        for path, before in reversed(self._files):
            with suppress(OSError):
                path.unlink(missing_ok=True) if before is None else path.write_bytes(before)
        for folder in reversed(self._folders):
            with suppress(OSError):  # somebody else put something there
                folder.rmdir()


def _template(name: str) -> str:
    return (files("claw.sdk.scaffold") / "files" / f"{name}.txt").read_text(encoding="utf-8")


def _filled(text: str, names: Names) -> str:
    for mark, value in _values(names).items():
        text = text.replace(f"@{mark}@", value)
    return text


def _values(names: Names) -> dict[str, str]:
    major, minor = (int(part) for part in version("claw-rl").split(".")[:2])
    after = f"{major}.{minor + 1}" if major == 0 else f"{major + 1}"
    return {
        "NAME": names.name, "DIST": names.distribution, "MODULE": names.module,
        "ENV": names.of_class("Env"), "JUDGE": names.of_class("Judge"),
        "CLAW": f"{major}.{minor}", "NEXT": after,
    }
