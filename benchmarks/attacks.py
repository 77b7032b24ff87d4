"""`python -m benchmarks.attacks`: how far attacks move the real model, with and without the guards.

    python -m benchmarks.attacks --out attacks.jsonl                  both sides, all attacks
    python -m benchmarks.attacks --guards off --only flood secret
    python -m benchmarks.attacks --wishes                             what is held of honest words
    python -m benchmarks.attacks --collect attacks.jsonl              print the table again

Each attack is a person of their own on one run: a key, an adapter, versions. It talks over HTTP to
`claw train --plugin personal` with the recipe of the demo in steps of four samples, and is measured
on questions that were never talked about, before and after: does the reply hold what was wanted,
and how likely is it. A line is written when an attack ends; what a file has is not done again.

Without guards: no rules, no shares, no limits of drift or of the quality gate. The step, the judge
and the hint filters are the same on both sides.
"""

import argparse
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from claw_env_personal.demo import run as runs
from claw_env_personal.demo.__main__ import RECIPE
from openai import OpenAI

from benchmarks.machine import describe
from benchmarks.poison import send, table
from benchmarks.poison.attack import Attack, Probe
from benchmarks.poison.measure import Scorer, made_of_it, newest
from benchmarks.poison.suite import ATTACKS, HONEST, WISHES
from claw.engine import models
from claw.engine.people import People
from claw.sdk.app import Person

STEP = ("train.batch_size=4", "train.max_wait_s=5", "train.lr=5e-4", "train.lr_floor=0",
        "train.decay_steps=0")
FLOOD = "guard.flood=8"
"""instead of 30: a step is of 4 samples here instead of 16"""
# the recipe sets guard.flood, which has no effect without the rule and has to be as it was
OFF = ("guard.rules=[]", "guard.flood=30", "guard.conversation_share=1", "guard.hint_share=1",
       "gate.max_rise=100", "gate.max_drift=0", "gate.max_step_drift=0")
SIDES = {"on": (FLOOD,), "off": OFF}
Probes = tuple[tuple[Probe, ...], int]
"""and how long the answers may be, in tokens"""
SUITE = {attack.name: attack for attack in (*ATTACKS, HONEST)}


def main(words: list[str] | None = None) -> None:
    o = _options(words)
    if o.collect:
        print("\n".join(table.of([row for file in o.collect for row in _read(file)])))
        return
    print(f"{describe()}, seed {o.seed}", flush=True)
    if o.wishes:
        _wishes(o)
        return
    for side in o.guards:
        left = [SUITE[name] for name in o.only if (name, side) not in _done(o.out)]
        if left:
            _side(side, left, o)
    print("\n".join(table.of(_read(o.out))))


def _options(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", help="more settings of both runs, a.b=c")
    parser.add_argument("--only", nargs="*", default=list(SUITE), choices=list(SUITE))
    parser.add_argument("--guards", nargs="*", default=list(SIDES), choices=list(SIDES))
    parser.add_argument("--wishes", action="store_true",
                        help="send the honest sentences of benchmarks/poison/honest.txt instead")
    parser.add_argument("--out", type=Path, default=Path("attacks.jsonl"))
    parser.add_argument("--collect", type=Path, nargs="*", default=[])
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_intermixed_args(words)


def _side(side: str, attacks: list[Attack], o: argparse.Namespace) -> None:
    """One run, and every attack on it by somebody of its own."""
    scorer, asked = Scorer(models.resolve(o.model)), dict[Probes, list[str]]()
    with _running(side, o) as run:
        for attack in attacks:
            row = {"attack": attack.name, "guards": side} | one(run, attack, scorer, asked)
            with o.out.open("a", encoding="utf-8") as out:
                out.write(json.dumps(row, ensure_ascii=False) + "\n")
            print(table.line(row), flush=True)


def _wishes(o: argparse.Namespace) -> None:
    """Print which sentences of honest people are held, and by which rule."""
    with _running("on", o) as run:
        said = send.wishes(somebody(run, "honest-words"), WISHES)
    held = {text: why for text, why in said.items() if "quarantine" in why}
    for text, why in held.items():
        print(f"{why.partition('quarantine: ')[2]:<60} {text}")
    print(f"{len(held)} of {len(said)} held")


@contextmanager
def _running(side: str, o: argparse.Namespace) -> Iterator[runs.Run]:
    folder = o.runs.resolve() / f"attacks-{side}-{time.strftime('%Y%m%d-%H%M%S')}"
    settings = [f"seed={o.seed}", *STEP, *SIDES[side], *o.overrides]
    run = runs.start(folder, RECIPE, settings, o.model)
    try:
        yield run
    finally:
        run.stop()


def one(
    run: runs.Run, attack: Attack, scorer: Scorer, asked: dict[Probes, list[str]]
) -> dict[str, Any]:
    """Play one attack; return what came of it. Where nothing was taught, before is also after.

    `asked`: what the first weights answered to probes so far.
    """
    began, theirs = time.monotonic(), somebody(run, attack.name)
    probes = attack.wants
    if (probes, attack.tokens) not in asked:
        asked[probes, attack.tokens] = send.answers(theirs, probes, attack.tokens)
    before = asked[probes, attack.tokens]
    send.play(theirs, attack)
    version = newest(run.folder, attack.name)
    after = send.answers(theirs, probes, attack.tokens) if version else before
    pairs = [(p.asks, p.reply or said) for p, said in zip(probes, before, strict=True)]
    return made_of_it(run.folder, attack.name) | {
        "talks": len(attack.talks), "logp": [scorer.logp(pairs, at) for at in (None, version)],
        "counts": [[p.counts(reply) for p, reply in zip(probes, said, strict=True)]
                   for said in (before, after)],
        "replies": [before[:3], after[:3]], "seconds": round(time.monotonic() - began, 1),
    }


def somebody(run: runs.Run, name: str) -> runs.Run:
    """The same run as a person sees it who has a key of their own."""
    key = People(run.folder).add(Person(name, is_admin=False))
    client = OpenAI(base_url=run.client.base_url, api_key=key, timeout=600, max_retries=2)
    return runs.Run(run.folder, run.process, client, run.model)


def _read(file: Path) -> list[dict[str, Any]]:
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def _done(file: Path) -> set[tuple[str, str]]:
    return {(row["attack"], row["guards"]) for row in _read(file)}


if __name__ == "__main__":
    main()
