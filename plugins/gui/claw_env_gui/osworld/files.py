"""Files that a task names by address: beside it, or in a cache of what OSWorld has downloaded.

Owns: from an address to a file of this machine. Nothing is ever fetched.
"""

import uuid
from pathlib import Path
from urllib.parse import unquote, urlsplit

from claw.sdk.formats.folder import FormatError

from .task import DesktopTask

MAX_FILE = 64 << 20


def cached(task: DesktopTask, url: str, cache: Path | None) -> Path | None:
    """Return the file that an address means; None where it is not on this machine.

    An address without a scheme is relative to the task's folder. One with a scheme is looked for in
    `cache`, under the names that OSWorld gives: `<task>/<uuid5 of the address>_<name>`, or <name>.
    """
    if "://" not in url:
        path = task.folder / url
        is_inside = _is_file(path) and path.resolve().is_relative_to(task.folder.resolve())
        return path.resolve() if is_inside else None
    if cache is None:
        return None
    name = Path(unquote(urlsplit(url).path)).name
    for each in (f"{uuid.uuid5(uuid.NAMESPACE_URL, url)}_{name}", name):
        path = cache / task.id / each
        if name and _is_file(path):
            return path
    return None


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # no name of a file at all: too long, or with a NUL in it
        return False


def content(task: DesktopTask, url: str, cache: Path | None) -> bytes:
    """Return the bytes of the file that an address means."""
    path = cached(task, url, cache)
    if path is None:
        raise FormatError("a file of a task is not there", found=url)
    if path.stat().st_size > MAX_FILE:
        raise FormatError("a file of a task is too large", found=str(path),
                          allowed=f"{MAX_FILE} bytes")
    return path.read_bytes()
