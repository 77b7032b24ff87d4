"""The memory of a run's processes over time: looked at, written down, fitted, drawn.

Owns: the proportional share (PSS) of each process, its slope, the picture.
Does not own: the run, what it does meanwhile.
"""

import json
import time
from collections import defaultdict
from pathlib import Path

import numpy as np

MB = 1e6
PER_S = 600.0
"""a slope is told for ten minutes"""

Series = dict[str, list[tuple[float, float]]]
"""of each process: seconds since the beginning, MB"""


class Watch:
    """Looks at processes and writes a line of JSON for each look."""

    def __init__(self, out: Path) -> None:
        self._out, self._began = out, time.monotonic()
        self.series: Series = defaultdict(list)

    def look(self, pids: dict[str, int], **more: float) -> None:
        at = time.monotonic() - self._began
        found = {name: mb for name, pid in pids.items() if (mb := pss(pid)) is not None}
        for name, mb in found.items():
            self.series[name].append((at, mb))
        with self._out.open("a") as out:
            out.write(json.dumps({"seconds": round(at, 1), "mb": found} | more) + "\n")


def pss(pid: int) -> float | None:
    """MB of a process, pages that others use as well divided by their number; None: it is gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return None
    kb = next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
    return round(kb * 1024 / MB, 1)


def slope(points: list[tuple[float, float]], after_s: float) -> float:
    """MB that are added in ten minutes after `after_s`, by least squares; NaN of fewer than 2."""
    kept = [(at, mb) for at, mb in points if at >= after_s]
    if len(kept) < 2:
        return float("nan")
    seconds, mbs = np.array(kept).T
    return float(np.polyfit(seconds, mbs, 1)[0] * PER_S)


def draw(series: Series, after_s: float, title: str, out: Path) -> None:
    """Write a picture: a line for each process; grey until `after_s`."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 4))
    for name, points in sorted(series.items()):
        minutes, mbs = [at / 60 for at, _ in points], [mb for _, mb in points]
        axes.plot(minutes, mbs, label=name, linewidth=1.2)
    axes.axvspan(0, after_s / 60, color="0.93")
    axes.set(xlabel="minutes", ylabel="MB (PSS)", title=title)
    axes.set_ylim(bottom=0)
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(out, dpi=110)
    plt.close(figure)
