"""`python -m benchmarks.soak`: memory, refusals and losses while many clients talk for long.

A real run (a tiny model with random weights, learning on) is talked to by `--clients` HTTP clients
for `--minutes`: whole answers, streams, some left in the middle, thumbs. Meanwhile the memory of
each process is looked at. Afterwards the journal says whether a turn was lost or trained twice. The
exit code is 1 when one was, or when a process or a socket is left.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

from claw_env_personal.demo import run as runs
from rich.console import Console
from rich.table import Table

from benchmarks import memory
from benchmarks.machine import describe
from benchmarks.talkers import Met, Talker
from claw.engine.actor.journal import Journal

console = Console(highlight=False)
ROOT = Path(__file__).parents[1]
LOOK_S = 5.0
WARM = 1 / 3
"""share of the time before memory is expected to be flat"""
SETTLE_S = 120.0
SETTINGS = (
    "lora.rank=4", "train.lr=1e-4", "train.max_wait_s=5", "worker.slots=16", "worker.queue=24",
    "serve.session_idle_s=30", "guard.flood=0",  # what one program says is a flood
)
LOST = ("interrupted", "failed", "judge_failed")
"""why a turn was given up though its answer had arrived"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("soak"), help="folder of what is found")
    parser.add_argument("--picture", type=Path, help="where the picture goes; default: beside it")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "memory.jsonl").unlink(missing_ok=True)
    # sockets have short names, and lie in the folder for temporary files
    with tempfile.TemporaryDirectory(prefix="claw-soak-") as folder:
        found, watch = _soak(Path(folder), options)
    (options.out / "soak.json").write_text(json.dumps(found, indent=2))
    title = f"{options.clients} clients, {options.minutes:g} minutes"
    memory.draw(watch.series, _warm_s(options), title,
                options.picture or options.out / "memory.png")
    _show(found, title)
    return int(any(found[name] for name in ("lost", "twice", "orphans")))


def _warm_s(options: argparse.Namespace) -> float:
    return float(options.minutes) * 60 * WARM


def _soak(folder: Path, options: argparse.Namespace) -> tuple[dict[str, Any], memory.Watch]:
    empty = folder / "settings.toml"
    empty.touch()
    run = runs.start(folder / "run", empty, [*SETTINGS, f"seed={options.seed}"], _model(folder))
    watch, met = memory.Watch(options.out / "memory.jsonl"), Met()
    try:
        asyncio.run(_talk(run, watch, met, options))
        run.wait_idle(SETTLE_S)
        steps = int(run.status()["trainer"].get("step") or 0)
    finally:
        run.stop()
    lost, twice = _kept(run.folder, met.answered)
    found = {
        "clients": options.clients, "minutes": options.minutes, "machine": describe(),
        "requests": dict(met.counts), "errors": dict(met.errors), "steps": steps,
        "lost": lost, "twice": twice, "orphans": _left(folder),
        "gap_s": round(met.gap_s, 2), "first_s": round(met.first_s, 2),
        "peak_mb": {name: max(mb for _, mb in points) for name, points in watch.series.items()},
        "slope_mb": {name: round(memory.slope(points, _warm_s(options)), 2)
                     for name, points in watch.series.items()},
    }
    return found, watch


def _model(folder: Path) -> str:
    sys.path.insert(0, str(ROOT / "tests"))
    from tiny import tiny_llama

    (folder / "model").mkdir()
    return str(tiny_llama(folder / "model", seed=3, max_position_embeddings=2048))


async def _talk(
    run: runs.Run, watch: memory.Watch, met: Met, options: argparse.Namespace
) -> None:
    over, address = asyncio.Event(), str(run.client.base_url).removesuffix("/v1/")
    talkers = [
        asyncio.create_task(Talker(options.seed * 1_000_003 + number, address, run.client.api_key,
                                   run.model, met).talk(over))
        for number in range(options.clients)
    ]
    until = time.monotonic() + options.minutes * 60
    while time.monotonic() < until:
        run.check()
        for talker in talkers:
            if talker.done():
                talker.result()  # a client that fails is a fault of this program
        await asyncio.to_thread(watch.look, _pids(run), answered=met.counts["answered"])
        await asyncio.sleep(LOOK_S)
    over.set()
    await asyncio.gather(*talkers)


def _pids(run: runs.Run) -> dict[str, int]:
    about = json.loads((run.folder / "run.json").read_text())
    return {"launcher": int(about["pid"])} | about["processes"]


def _kept(run: Path, answered: list[str]) -> tuple[int, int]:
    """Return how many answered turns the journal lacks or gave up, and how many trained twice."""
    with closing(Journal(run, read_only=True)) as journal:
        states = {id: (state, reason or "") for id, state, reason in journal.read(
            "SELECT id, state, reason FROM turns")}
        trained = Counter(id for (id,) in journal.read(
            "SELECT turn_id FROM samples WHERE state='trained'"))
    lost = [id for id in answered
            if id not in states or states[id][0] == "open" or states[id][1].startswith(LOST)]
    return len(lost), sum(n > 1 for n in trained.values())


def _left(folder: Path) -> int:
    """Count processes of the run, and sockets in its folder, after its end."""
    processes = 0
    for words in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            processes += str(folder).encode() in words.read_bytes()
        except OSError:
            continue
    return processes + sum(path.is_socket() for path in folder.rglob("*"))


def _show(found: dict[str, Any], title: str) -> None:
    table = Table(title=f"{title}; {found['machine']}", title_justify="left", show_header=False)
    requests = dict(found["requests"])
    refused = {status: n for status, n in requests.items() if status.isdigit()}
    for label, value in (
        ("answered", f"{requests.get('answered', 0):,}"),
        ("  of them streamed", f"{requests.get('streamed', 0):,}"),
        ("left in the middle", f"{requests.get('left', 0):,}"),
        ("thumbs", f"{requests.get('thumbs', 0):,}"),
        ("refused", ", ".join(f"{s}: {n:,}" for s, n in sorted(refused.items())) or "0"),
        ("broken", f"{requests.get('broken', 0)} {found['errors'] or ''}"),
        ("steps", str(found["steps"])), ("turns lost", str(found["lost"])),
        ("turns trained twice", str(found["twice"])), ("left over", str(found["orphans"])),
        ("longest gap in a stream", f"{found['gap_s']:.2f} s"),
        ("longest wait for its first chunk", f"{found['first_s']:.2f} s"),
        *((f"{name}: peak, slope after warm-up", f"{mb:.0f} MB, "
           f"{found['slope_mb'][name]:+.1f} MB in 10 minutes")
          for name, mb in sorted(found["peak_mb"].items())),
    ):
        table.add_row(label, value)
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
