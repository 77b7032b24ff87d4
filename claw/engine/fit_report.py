"""`claw doctor --fit MODEL` in the terminal: one table over cards, one over the parts.

Owns: the words. Does not own: the numbers (fit), the presets.
"""

from rich.console import Console
from rich.table import Table

from claw.engine import fit
from claw.engine.report import read_config
from claw.presets import PRESETS

USABLE = 0.95
"""of a card's memory; the rest is the driver's, the screen's, and what allocators cannot join"""
console = Console(highlight=False)


def show(model: str, words: list[str], preset: str = "") -> int:
    """Print what the model needs with each preset, or part by part with one; -> an exit code.

    0: it fits somewhere (or on the card of the preset), 1: it does not. Settings among the words
    hold for every row.
    """
    if preset:
        return _parts(model, words, preset)
    table = Table("preset", "trainer, GB", "worker, GB", "together", "card", "fits")
    fits = False
    for name in PRESETS:
        found = _estimate(model, words, name)
        together, room = fit.total(found), room_of(name)
        fits |= together <= room
        table.add_row(name, _gb(fit.total(found, "trainer")), _gb(fit.total(found, "worker")),
                      _gb(together), _gb(room), "yes" if together <= room else "no")
    console.print(table)
    for name, known in PRESETS.items():
        console.print(f"{name:<5} {known.note}")
    console.print("part by part: claw doctor --fit MODEL --preset NAME; to run with one: "
                  "claw train --preset NAME")
    return 0 if fits else 1


def _parts(model: str, words: list[str], preset: str) -> int:
    found = _estimate(model, words, preset)
    table = Table("process", "what", "GB")
    for part in found:
        table.add_row(part.process, part.what, _gb(part.num_bytes))
    table.add_row("", "together", _gb(fit.total(found)))
    console.print(table)
    room = room_of(preset)
    is_enough = fit.total(found) <= room
    console.print(f"the card has {_gb(room)} GB to give: "
                  + ("it fits" if is_enough else "it does not fit"))
    return 0 if is_enough else 1


def _estimate(model: str, words: list[str], preset: str) -> list[fit.Part]:
    config = read_config(words, "", model, preset)
    return fit.estimate(model, fit.on_gpu(config))


def room_of(preset: str) -> float:
    """Bytes of the preset's card that a run may use."""
    return PRESETS[preset].gigabytes * 2.0**30 * USABLE


def _gb(num_bytes: float) -> str:
    return f"{num_bytes / 1e9:.2f}"
