"""Metrics out: JSON lines always, trackers when asked.

Owns: one line per record in `metrics.jsonl`, the fan-out to wandb, tensorboard and trackio.
Does not own: what is measured. After the start nothing here raises: a full disk or a tracker that
is away must not end a run; the first failure of each outlet is logged and the outlet goes quiet.
"""

import importlib.util
import json
import logging
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from claw.config import TrackConfig
from claw.errors import UsageError

log = logging.getLogger(__name__)

METRICS = "metrics.jsonl"
Values = Mapping[str, float | int | str]
Outlet = Callable[[dict[str, Any], int], None]


class Monitor:
    """Where the numbers of one process go."""

    def __init__(self, run_dir: Path, track: TrackConfig, config: Mapping[str, Any]) -> None:
        """UsageError: a tracker is asked for whose package is not installed, or does not start."""
        self.file = Path(run_dir) / METRICS
        self.outlets: dict[str, Outlet] = {METRICS: self._write}
        self._closers: list[Callable[[], None]] = []
        for name in track.to:
            self.outlets[name] = self._open(name, Path(run_dir), track, dict(config))

    def log(self, values: Values, step: int) -> None:
        """Record numbers (and short texts) at a step; NaN and inf become null."""
        record = {name: _plain(value) for name, value in values.items()}
        for name, outlet in list(self.outlets.items()):
            try:
                outlet(record, step)
            except Exception as error:  # an outlet is never worth the run
                log.warning("metrics to %s stop: %s: %s", name, type(error).__name__, error)
                del self.outlets[name]

    def close(self) -> None:
        for closer in self._closers:
            try:
                closer()
            except Exception as error:  # the same at the end
                log.warning("a tracker did not close: %s: %s", type(error).__name__, error)
        self._closers, self.outlets = [], {}

    def _write(self, record: dict[str, Any], step: int) -> None:
        line = json.dumps({"step": step, "time": round(time.time(), 3), **record}, allow_nan=False)
        try:
            with self.file.open("a", encoding="utf-8") as out:
                out.write(line + "\n")
        except OSError as error:  # there may be room again for the next one
            log.warning("a line of metrics is lost: %s", error)

    def _open(
        self, name: str, run_dir: Path, track: TrackConfig, config: dict[str, Any]
    ) -> Outlet:
        if importlib.util.find_spec(name) is None:
            raise UsageError(
                f"track.to asks for {name}, which is not installed", found=f"no package {name!r}",
                do=f"pip install {name}, or take it out of track.to",
            )
        try:
            outlet, closer = _OPENERS[name](run_dir, track.project, config)
        except Exception as error:
            raise UsageError(
                f"{name} does not start", found=f"{type(error).__name__}: {error}",
                do="fix that, or take it out of track.to",
            ) from error
        self._closers.append(closer)
        return outlet


def _plain(value: Any) -> Any:
    if isinstance(value, bool | int | str):
        return value
    number = float(value)
    return number if math.isfinite(number) else None


def _numbers(record: dict[str, Any]) -> dict[str, float]:
    return {n: v for n, v in record.items() if isinstance(v, float | int)}


Opened = tuple[Outlet, Callable[[], None]]


def _wandb(run_dir: Path, project: str, config: dict[str, Any]) -> Opened:
    import wandb

    run = wandb.init(project=project, name=run_dir.name, dir=str(run_dir), config=config)
    return lambda record, step: run.log(_numbers(record), step=step), run.finish


def _trackio(run_dir: Path, project: str, config: dict[str, Any]) -> Opened:
    import trackio

    trackio.init(project=project, name=run_dir.name, config=config)
    return lambda record, step: trackio.log(_numbers(record), step=step), trackio.finish


def _tensorboard(run_dir: Path, project: str, config: dict[str, Any]) -> Opened:
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(run_dir / "tensorboard"))

    def write(record: dict[str, Any], step: int) -> None:
        for name, value in _numbers(record).items():
            writer.add_scalar(name, value, step)

    return write, writer.close


_OPENERS: dict[str, Callable[[Path, str, dict[str, Any]], Opened]] = {
    "wandb": _wandb, "trackio": _trackio, "tensorboard": _tensorboard,
}
