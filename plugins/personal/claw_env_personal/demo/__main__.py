"""`python -m claw_env_personal.demo`: measure, talk, learn, measure again, show the change."""

import argparse
import json
import sys
import time
from dataclasses import asdict
from importlib import resources
from pathlib import Path
from typing import Any

from rich.live import Live

from claw_env_personal.demo import run as runs
from claw_env_personal.demo import show
from claw_env_personal.demo.measure import Measured, measure
from claw_env_personal.demo.talk import Conversation, streak_at, talk_round
from claw_env_personal.people import PEOPLE, person

RECIPE = Path(str(resources.files("claw_env_personal.demo") / "recipe.toml"))


def main() -> None:
    options = _options()
    started = time.monotonic()
    folder = Path(options.runs).resolve() / (
        options.name or f"demo-{options.person}-{time.strftime('%Y%m%d-%H%M%S')}"
    )
    show.console.print(f"person [bold]{options.person}[/bold]   model {options.model}   "
                       f"seed {options.seed}\nrun folder [bold]{folder}[/bold]\n"
                       "starting claw: actor, worker, trainer, runner ...")
    overrides = [f"seed={options.seed}", *options.overrides]
    try:
        run = runs.start(folder, RECIPE, overrides, options.model)
        try:
            result = _play(run, options)
        finally:
            run.stop()
    except runs.DemoError as error:
        sys.exit(f"error: {error}")
    _finish(result, options, folder, time.monotonic() - started)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="claw_env_personal.demo", description=__doc__)
    parser.add_argument("overrides", nargs="*", help="settings of the run, a.b=c")
    parser.add_argument("--person", default="plain", choices=sorted(PEOPLE))
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--conversations", type=int, default=40, help="at most so many")
    parser.add_argument("--at-once", type=int, default=8, help="conversations at a time")
    parser.add_argument("--at-least", type=int, default=40,
                        help="go on for so many even when three in a row are hits before")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--runs", default="runs")
    parser.add_argument("--name", default="", help="of the run folder")
    return parser.parse_args()


def _play(run: runs.Run, options: argparse.Namespace) -> dict[str, Any]:
    who = person(options.person, options.seed)
    show.console.print("measuring before: held-out questions and facts ...")
    before = measure(run, who, options.max_tokens, options.seed)
    talks, versions = _talk(run, options)
    show.console.print("measuring after ...")
    after = measure(run, who, options.max_tokens, options.seed)
    return {"before": before, "after": after, "talks": talks, "versions": versions,
            "status": run.status()}


def _talk(run: runs.Run, options: argparse.Namespace) -> tuple[list[Conversation], list[int]]:
    """Rounds of conversations; the person waits while their last corrections are learned."""
    talks: list[Conversation] = []
    versions: list[int] = []
    with Live(console=show.console, refresh_per_second=4) as live:

        def tell(doing: str) -> None:
            status = run.status()
            step = status.get("trainer", {}).get("step", 0)
            live.update(show.progress(talks, status.get("served_version", 0), step, doing))

        while _goes_on(talks, options):
            tell("talking")
            version = int(run.status().get("served_version", 0))
            numbers = range(len(talks), min(len(talks) + options.at_once, options.conversations))
            new = talk_round(run, options.person, options.seed, numbers, options.max_tokens)
            talks += new
            versions += [version] * len(new)
            tell("learning")
            run.wait_idle()
        tell("done")
    return talks, versions


def _goes_on(talks: list[Conversation], options: argparse.Namespace) -> bool:
    """Until three first replies in a row are hits, and for a while longer: a streak can be luck."""
    if len(talks) >= options.conversations:
        return False
    return len(talks) < options.at_least or not streak_at([t.is_hit for t in talks])


def _finish(
    result: dict[str, Any], options: argparse.Namespace, folder: Path, seconds: float
) -> None:
    before, after, talks = result["before"], result["after"], result["talks"]
    met_at = streak_at([t.is_hit for t in talks])
    show.console.print(show.replies(before, after))
    show.console.print(show.table(before, after, met_at, options.conversations))
    picture = folder / "learning_curve.png"
    show.curve(talks, result["versions"], before, after,
               f"{options.person}, seed {options.seed}", picture)
    summary = _summary(before, after, talks, met_at, seconds, options)
    (folder / "demo.json").write_text(json.dumps(summary, indent=2))
    show.console.print(f"learning curve  {picture}\nrun folder      {folder}\n"
                       f"took            {seconds / 60:.1f} minutes\n"
                       f"next            {_claw()} versions --run {folder}\n"
                       f"                {_claw()} train --resume {folder}    (to talk to it)",
                       soft_wrap=True)


def _claw() -> str:
    """The command as it can be typed here: the environment need not be on the PATH."""
    found = Path(sys.prefix) / "bin" / "claw"
    return str(found.relative_to(Path.cwd()) if found.is_relative_to(Path.cwd()) else found)


def _summary(
    before: Measured, after: Measured, talks: list[Conversation], met_at: int | None,
    seconds: float, options: argparse.Namespace,
) -> dict[str, Any]:
    return {
        "person": options.person, "seed": options.seed, "model": options.model,
        "settings": options.overrides, "met_at": met_at, "seconds": seconds,
        "hits": [t.is_hit for t in talks],
        "before": {k: v for k, v in asdict(before).items() if k != "replies"},
        "after": {k: v for k, v in asdict(after).items() if k != "replies"},
        "replies": [[q.text, old, new] for (q, old, _), (_, new, _) in
                    zip(before.replies, after.replies, strict=True)],
        "talks": [t.messages for t in talks],
    }


if __name__ == "__main__":
    main()
