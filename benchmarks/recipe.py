"""`python -m benchmarks.recipe [a.b=c ...]`: the demo's loop in one process, to try settings.

    python -m benchmarks.recipe --seed 1 loss.w_rl=0.5 train.lr=2e-4 --measure-at 3 4 5
    python -m benchmarks.recipe --teachers rollout.max_tokens=128     what can be taught at all

What the loop leaves out is said in benchmarks/trial.py; what looks good here is shown by the demo
itself (`benchmarks.seeds`).
"""

import argparse
import time

from claw_env_personal.demo.talk import streak_at
from claw_env_personal.people import PEOPLE, on_topic, person, questions
from claw_env_personal.people.people import WISHES

from benchmarks.trial import Trial, mean, user
from claw.engine.actor.chat import HINT_MARK


def main() -> None:
    o = _options()
    trial = Trial.load(o.overrides, o.seed, o.model)
    if o.teachers:
        for name in PEOPLE:
            print(teacher(trial, name), flush=True)
        return
    who, started = person(o.person, o.seed), time.monotonic()

    def tell(after: int) -> None:
        found = trial.measure(who, o.repeats, o.every_fact)
        numbers = ", ".join(f"{name} {value:.2f}" for name, value in found.items())
        print(f"MEASURED after step {after}: {numbers} ({time.monotonic() - started:.0f} s)",
              flush=True)

    if 0 in o.measure_at:
        tell(0)
    while len(trial.hits) < o.conversations:
        numbers = range(len(trial.hits), min(len(trial.hits) + o.at_once, o.conversations))
        trial.learn(trial.round([person(o.person, o.seed) for _ in numbers], numbers))
        print(f"  {len(trial.hits)} conversations, first replies "
              f"{''.join('+' if hit else '.' for hit in trial.hits)}", flush=True)
        if trial.number in o.measure_at or len(trial.hits) >= o.conversations:
            tell(trial.number)
    print(f"three in a row at conversation {streak_at(trial.hits) or 'none'}")


def teacher(trial: Trial, who: str, num: int = 16) -> str:
    """Rates without and with a hint in the person's words: they bound what can be taught."""
    c, asked, lines = trial.config.rollout, questions("talk")[:num], []
    for is_hinted in (False, True):
        prompts = []
        for i, question in enumerate(asked):
            wishes = [WISHES[part][i % len(WISHES[part])] for part in PEOPLE[who].split("+")]
            hint = f"{HINT_MARK}{' '.join(wishes)}" if is_hinted else ""
            prompts.append([user(question.text + hint)])
        replies = trial.answer(prompts, c.max_tokens, c.temperature)
        met = [not person(who).unmet(r.text) for r in replies]
        on = [on_topic(q, r.text) for q, r in zip(asked, replies, strict=True)]
        both = [a and b for a, b in zip(met, on, strict=True)]
        lines.append(f"taste {mean(met):.2f} topic {mean(on):.2f} hits {mean(both):.2f}")
    return f"{who:<15} plain: {lines[0]}   hinted: {lines[1]}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", help="settings of the run, a.b=c")
    parser.add_argument("--person", default="plain")
    parser.add_argument("--teachers", action="store_true",
                        help="print each person's rates of the hinted model, train nothing")
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--conversations", type=int, default=36)
    parser.add_argument("--at-once", type=int, default=6)
    parser.add_argument("--measure-at", type=int, nargs="*", default=[], help="after these steps")
    parser.add_argument("--repeats", type=int, default=2, help="of each held-out question")
    parser.add_argument("--every-fact", type=int, default=8, help="ask one of so many facts")
    return parser.parse_intermixed_args()


if __name__ == "__main__":
    main()
