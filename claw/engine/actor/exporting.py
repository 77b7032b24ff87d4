"""An adapter as a peft folder: what `claw export` and the dashboard's button write.

Owns: copying it without claw's own files. Does not own: whole models (`claw.engine.export`).
"""

import shutil
from pathlib import Path

from claw.errors import UsageError
from claw.records import Version

OWN_FILES = ("manifest.json", "canary.safetensors")


def copy_adapter(version: Version, folder: Path) -> None:
    """Write the files that peft loads into `folder`, which must be empty or new."""
    check_empty(folder)
    shutil.copytree(version.path, folder, dirs_exist_ok=True,
                    ignore=shutil.ignore_patterns(*OWN_FILES))


def check_empty(folder: Path) -> None:
    if folder.exists() and any(folder.iterdir()):
        raise UsageError("the folder is not empty", found=str(folder),
                         do="empty it, or name another one")
