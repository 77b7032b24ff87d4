"""A repository out of a source distribution or a git repository: the files of one state.

Owns: unpacking within bounds, the files of a commit, and pytest for images that have none.
Does not own: downloading (`fetch`), the sandbox in which the files become a repository (`machine`).
"""

import io
import subprocess
import tarfile
import zipfile
from pathlib import Path

from .fetch import Pin, cache_dir, fetch
from .instance import Instance, RowError, Source

MAX_FILES = 50_000
MAX_BYTES = 512 << 20
GIT_S = 900.0
PYTEST = (
    ("pytest==8.3.5", "c69214aa47deac29fad6c2a4f590b9c4a9fdb16a403176fe154b79c0b4d4d820"),
    ("pluggy==1.5.0", "44e1ad92c8ca002de6377e165f3e0f1be63266ab4d554740532335b9d75ea669"),
    ("iniconfig==2.0.0", "b6a85871a79d2e3b22d2d1b94ac2824226a63c6b741c88f7ae975f18b6778374"),
    ("packaging==24.2", "09abb1bccd265c01f4a3aa3f7a7db064b36514d2cba19a2f694fe6150451a759"),
)
"""pure wheels, put on the path of the tests as files"""


def pins(source: Source) -> list[Pin]:
    """Return what has to be downloaded for a source."""
    return [*([(source.sdist, source.sha256)] if source.sdist else []), *PYTEST]


def unpack(instance: Instance, tree: Path, pytest: Path) -> None:
    """Put the files of the instance's repository into `tree`, and pytest beside it."""
    source = instance.source or Source()
    files = fetch(pins(source))
    if source.sdist:
        _untar(files[0].read_bytes(), tree, strip=1)
    else:
        _untar(_of_git(source.git, instance), tree, strip=0)
    for wheel in files[-len(PYTEST):]:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(pytest)  # zipfile keeps names inside the folder


def _untar(data: bytes, folder: Path, *, strip: int) -> None:
    """Unpack regular files and folders; what leaves the folder, or is too much, is an error."""
    folder.mkdir(parents=True, exist_ok=True)
    total = 0
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        for count, member in enumerate(tar):
            total += member.size
            if count >= MAX_FILES or total > MAX_BYTES:
                raise RowError("a repository is too large", found=str(folder.name),
                               allowed=f"{MAX_BYTES} bytes in {MAX_FILES} files")
            member.name = "/".join(member.name.split("/")[strip:])
            if member.name:
                tar.extract(member, folder, filter="data")


def _of_git(address: str, instance: Instance) -> bytes:
    """The files of the base commit as a tar; no other commit gets into the sandbox."""
    commit = instance.base_commit
    if not commit or commit.startswith("-"):
        raise RowError("a git source needs a base_commit", found=instance.id)
    if Path(address).is_dir():
        where = Path(address)
    else:
        import hashlib

        where = cache_dir() / f"git-{hashlib.sha256(address.encode()).hexdigest()[:24]}"
        if not where.is_dir():
            where.parent.mkdir(parents=True, exist_ok=True)
            _git(["clone", "--quiet", "--bare", "--", address, str(where)], instance)
    return _git(["-C", str(where), "archive", "--format=tar", commit], instance)


def _git(words: list[str], instance: Instance) -> bytes:
    done = subprocess.run(["git", *words], capture_output=True, timeout=GIT_S, check=False)
    if done.returncode != 0:
        raise RowError("the repository of an instance cannot be had",
                       found=f"{instance.id}: {done.stderr.decode('utf-8', 'replace')[-300:]}",
                       do="check source.git and base_commit")
    return done.stdout
