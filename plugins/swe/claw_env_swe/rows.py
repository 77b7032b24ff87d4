"""Rows from files and from `datasets`, one at a time.

Owns: JSONL, JSON and parquet files, and names on the hub.
Does not own: what a row means (`families`).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from claw.sdk.foreign_json import from_json

from .instance import RowError

MAX_LINE = 64 << 20
"""bytes of one row: some gold patches are long"""
MAX_JSON = 1 << 30
ENDINGS = (".jsonl", ".json", ".parquet")
HUB = "datasets:"


def read(where: str, split: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (place, row) of a file or of `datasets:ORG/NAME`."""
    if where.startswith(HUB):
        return _of_hub(where.removeprefix(HUB), split)
    path = Path(where).expanduser()
    if path.suffix not in ENDINGS:
        raise RowError("this is no file of instances", found=str(path),
                       allowed=f"a name that ends in {', '.join(ENDINGS)}, {HUB}ORG/NAME, shipped")
    if not path.is_file():
        raise RowError("no such file of instances", found=str(path))
    return {".jsonl": _of_lines, ".json": _of_json, ".parquet": _of_parquet}[path.suffix](path)


def _of_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    with path.open("rb") as file:
        for number in range(1, 1 << 62):
            line = file.readline(MAX_LINE + 1)
            if not line:
                return
            if len(line) > MAX_LINE:
                raise RowError("a row is too long", found=f"{path}:{number}",
                               allowed=f"{MAX_LINE} bytes")
            if line.strip():
                yield f"{path}:{number}", _object(line, f"{path}:{number}")


def _of_json(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    if path.stat().st_size > MAX_JSON:
        raise RowError("a file of instances is too long", found=str(path),
                       do="write it as .jsonl or .parquet")
    try:
        rows = from_json(path.read_bytes())
    except ValueError as error:
        raise RowError("a file of instances is no JSON", found=f"{path}: {error}") from error
    for number, row in enumerate(rows if isinstance(rows, list) else [rows], 1):
        if not isinstance(row, dict):
            raise RowError("a row is no object", found=f"{path}, row {number}")
        yield f"{path}, row {number}", row


def _of_parquet(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        from pyarrow import parquet
    except ImportError:
        raise RowError("parquet files need pyarrow", found=str(path),
                       do="pip install 'claw-env-swe[parquet]'") from None
    number = 0
    for batch in parquet.ParquetFile(path).iter_batches(batch_size=64):
        for row in batch.to_pylist():
            number += 1
            yield f"{path}, row {number}", row


def _of_hub(name: str, split: str) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        from datasets import load_dataset
    except ImportError:
        raise RowError("names on the hub need datasets", found=name,
                       do="pip install 'claw-env-swe[datasets]'") from None
    try:
        rows = load_dataset(name, split=split)
    except Exception as error:  # the client raises many kinds; the person needs one message
        raise RowError(f"the data set {name!r} cannot be had",
                       found=f"{type(error).__name__}: {error}"[:500],
                       do="check its name, plugin.swe.instances_split and the network") from error
    for number, row in enumerate(rows, 1):
        yield f"{name}, row {number}", dict(row)


def _object(line: bytes, where: str) -> dict[str, Any]:
    try:
        row = from_json(line)
    except ValueError as error:
        raise RowError("a row is no JSON", found=f"{where}: {error}") from error
    if not isinstance(row, dict):
        raise RowError("a row is no object", found=where)
    return row
