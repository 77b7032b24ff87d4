"""`python -m benchmarks.recipe [a.b=c ...]`: the demo's loop in one process, to try settings.

    python -m benchmarks.recipe --seed 1 loss.w_rl=0.5 train.lr=2e-4 --measure-at 3 4 5
    python -m benchmarks.recipe --teachers rollout.max_tokens=128     what can be taught at all

The person, the questions, the rules judge, the hinted prompts and the step are those of the demo.
Left out: serving, the journal, the quality gate. A round's replies are sampled in one batch by
plain transformers, so that a trial takes a few minutes on two cores; what looks good here is shown
by the demo itself (`benchmarks.seeds`).
"""

import argparse
import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from claw_env_personal.demo.__main__ import RECIPE
from claw_env_personal.demo.measure import FACT_TOKENS
from claw_env_personal.demo.talk import streak_at
from claw_env_personal.people import (
    PEOPLE,
    Person,
    correct,
    facts,
    on_topic,
    person,
    questions,
)
from claw_env_personal.people.people import WISHES

from claw import config as settings
from claw.config import RunConfig
from claw.engine import models
from claw.engine.actor.buffer import Buffer
from claw.engine.actor.chat import HINT_MARK, Chat
from claw.engine.trainer import model, step
from claw.engine.trainer.optim import Optimiser
from claw.records import Message, Sample, Version, new_id
from claw.sdk.judges.rules import RulesJudge
from claw.sdk.judging import Case, Verdict

OWNER = ADAPTER = "default"
BATCH = 48
"""sequences sampled at once"""


@dataclass
class Reply:
    """One sampled reply to `messages`."""

    messages: list[Message]
    prompt_ids: np.ndarray
    ids: np.ndarray
    logps: np.ndarray
    text: str


@dataclass
class Trial:
    """A policy, its optimiser, and how the talks went."""

    config: RunConfig
    chat: Chat
    policy: model.Policy
    optim: Optimiser
    random: torch.Generator
    hits: list[bool] = field(default_factory=list)
    number: int = 0

    # --- sampling ----------------------------------------------------------------------------

    def answer(
        self, asked: Sequence[list[Message]], max_tokens: int, temperature: float
    ) -> list[Reply]:
        """One reply to each conversation, with the current weights; greedy at temperature 0."""
        prompts = [self.chat.prompt(messages).ids for messages in asked]
        order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
        found: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        with self._merged():
            for at in range(0, len(order), BATCH):
                part = order[at : at + BATCH]
                rows = self._sample([prompts[i] for i in part], max_tokens, temperature)
                found |= dict(zip(part, rows, strict=True))
        return [
            Reply(list(asked[i]), prompts[i], *found[i],
                  self.chat.decode(self.chat.without_stop(found[i][0])).strip())
            for i in range(len(prompts))
        ]

    @contextmanager
    def _merged(self) -> Iterator[None]:
        if self.policy.peft is None:
            yield
            return
        self.policy.peft.merge_adapter()
        try:
            yield
        finally:
            self.policy.peft.unmerge_adapter()

    @torch.inference_mode()
    def _sample(
        self, prompts: list[np.ndarray], max_tokens: int, temperature: float
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """Left-padded prompts, one token at a time; rows that ended leave the batch."""
        width = max(map(len, prompts))
        ids = torch.zeros((len(prompts), width), dtype=torch.long)
        seen = torch.zeros_like(ids)
        for row, prompt in enumerate(prompts):
            ids[row, width - len(prompt):] = torch.as_tensor(prompt.astype(np.int64))
            seen[row, width - len(prompt):] = 1
        place, cache = (seen.cumsum(-1) - 1).clamp(min=0), None
        out: list[list[tuple[int, float]]] = [[] for _ in prompts]
        alive = list(range(len(prompts)))
        for _ in range(max_tokens):
            said = self.policy.lm(input_ids=ids, attention_mask=seen, position_ids=place,
                                  past_key_values=cache, use_cache=True, logits_to_keep=1)
            cache = said.past_key_values
            logp = torch.log_softmax(said.logits[:, -1].float() / (temperature or 1.0), dim=-1)
            ids = (torch.multinomial(logp.exp(), 1, generator=self.random) if temperature
                   else logp.argmax(dim=-1, keepdim=True))
            for row, i in enumerate(alive):
                out[i].append((int(ids[row]), float(logp[row, ids[row]])))
            left = [row for row, i in enumerate(alive) if out[i][-1][0] not in self.chat.stop_ids]
            if not left:
                break
            if len(left) < len(alive):
                rows = torch.tensor(left)
                cache.batch_select_indices(rows)
                ids, seen, place = ids[rows], seen[rows], place[rows]
                alive = [alive[row] for row in left]
            place = place[:, -1:] + 1
            seen = torch.cat([seen, seen.new_ones(len(alive), 1)], dim=1)
        return [(np.array([id for id, _ in row], np.int32),
                 np.array([logp for _, logp in row], np.float32)) for row in out]

    # --- talking and learning ----------------------------------------------------------------

    def round(self, people: list[Person], numbers: range) -> list[Sample]:
        """Conversations as the demo has them; return what there is to learn from them."""
        c = self.config.rollout
        asked = [who.ask(n) for who, n in zip(people, numbers, strict=True)]
        open_talks = [(who, q, [_user(q.text)]) for who, q in zip(people, asked, strict=True)]
        samples: list[Sample] = []
        is_first = True
        while open_talks:
            replies = self.answer([m for *_, m in open_talks], c.max_tokens, c.temperature)
            going = []
            for (who, question, messages), reply in zip(open_talks, replies, strict=True):
                hit = who.is_hit(question, reply.text)
                if is_first:
                    self.hits.append(hit)
                reaction = who.react(question, reply.text)
                if reaction is None:
                    continue  # the person left: no next state
                said = [{"role": "assistant", "content": reply.text}, _user(reaction)]
                samples.append(self._sample_of(reply, _judge(reply, said[1])))
                if not hit:
                    going.append((who, question, messages + said))
            open_talks, is_first = going, False
        buffer = Buffer(self.config.async_.max_staleness)
        return [s for s in samples if not buffer.refusal(s)]

    def _sample_of(self, reply: Reply, verdict: Verdict) -> Sample:
        n, vote = len(reply.ids), verdict.vote
        hints = [self.chat.hinted(reply.messages, (), hint) for hint in verdict.hints]
        return Sample(
            new_id("sample"), new_id("turn"), new_id("trace"), OWNER, ADAPTER, reply.prompt_ids,
            reply.ids, reply.logps, np.ones(n, bool), np.full(n, vote or 0, np.float32),
            np.full(n, self.number, np.int32), self.config.rollout.temperature,
            has_advantage=bool(vote) and self.config.loss.w_rl > 0, hints=tuple(hints),
            truncated=reply.ids[-1] not in self.chat.stop_ids,
        )

    def learn(self, samples: list[Sample]) -> None:
        size = self.config.train.batch_size
        for at in range(0, len(samples), size):
            version = Version(OWNER, ADAPTER, self.number, None, "0" * 64)
            done = step.run(self.policy, self.optim, samples[at : at + size], self.config,
                            version=version, seed=self.number)
            self.number += 1
            m = done.loss.metrics
            print(f"step {self.number}: {len(samples[at : at + size])} samples, "
                  f"{m['train/opd_samples']:.0f} hinted, length {m['rollout/reply_len_mean']:.0f}, "
                  f"gradient {done.grad_norm:.2f}, lr {done.lr:.1e} {done.skipped}", flush=True)

    # --- measuring ---------------------------------------------------------------------------

    def measure(self, who: Person, repeats: int, every_fact: int) -> dict[str, float]:
        """Rates on the held-out questions, each asked `repeats` times, and on the facts."""
        c, held = self.config.rollout, questions("held") * repeats
        replies = self.answer([[_user(q.text)] for q in held], c.max_tokens, c.temperature)
        pairs = list(zip(held, replies, strict=True))
        known = facts()[::every_fact]
        answers = self.answer([[_user(f.text)] for f in known], FACT_TOKENS, 0.0)
        return {
            "hits": _mean([who.is_hit(q, r.text) for q, r in pairs]),
            "taste": _mean([not who.unmet(r.text) for _, r in pairs]),
            "topic": _mean([on_topic(q, r.text) for q, r in pairs]),
            "tokens": _mean([len(r.ids) for r in replies]),
            "facts": _mean([correct(f, a.text) for f, a in zip(known, answers, strict=True)]),
        }


    def teacher(self, who: str, num: int = 16) -> str:
        """Rates without and with a hint in the person's words: they bound what can be taught."""
        c, asked, lines = self.config.rollout, questions("talk")[:num], []
        for is_hinted in (False, True):
            prompts = []
            for i, question in enumerate(asked):
                wishes = [WISHES[part][i % len(WISHES[part])] for part in PEOPLE[who].split("+")]
                hint = f"{HINT_MARK}{' '.join(wishes)}" if is_hinted else ""
                prompts.append([_user(question.text + hint)])
            replies = self.answer(prompts, c.max_tokens, c.temperature)
            met = [not person(who).unmet(r.text) for r in replies]
            on = [on_topic(q, r.text) for q, r in zip(asked, replies, strict=True)]
            both = [a and b for a, b in zip(met, on, strict=True)]
            lines.append(f"taste {_mean(met):.2f} topic {_mean(on):.2f} hits {_mean(both):.2f}")
        return f"{who:<15} plain: {lines[0]}   hinted: {lines[1]}"


def _user(text: str) -> Message:
    return {"role": "user", "content": text}


def _judge(reply: Reply, next_message: Message) -> Verdict:
    case = Case("trial", tuple(reply.messages), {"role": "assistant", "content": reply.text},
                (next_message,))
    return asyncio.run(RulesJudge().judge(case))


def _mean(values: Sequence[Any]) -> float:
    return float(np.mean(values)) if len(values) else 0.0


def main() -> None:
    o = _options()
    config = settings.load(RECIPE, tuple([f"seed={o.seed}", *o.overrides]))
    folder = models.resolve(o.model)
    chat = Chat(folder)
    policy = model.load(folder, config)
    trial = Trial(config, chat, policy, Optimiser(policy.parameters, config.train),
                  torch.Generator().manual_seed(o.seed))
    if o.teachers:
        for name in PEOPLE:
            print(trial.teacher(name), flush=True)
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
