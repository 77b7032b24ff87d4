"""The demo's loop in one process: conversations, the judge's verdicts, the trainer's own step.

The person, the questions, the rules judge, the hinted prompts and the step are those of the demo.
Left out: serving, the journal, the quality gate. A round's replies are sampled in one batch by
plain transformers, so that a trial takes a few minutes on two cores.
"""

import asyncio
import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from claw_env_personal.demo.__main__ import RECIPE
from claw_env_personal.demo.measure import FACT_TOKENS
from claw_env_personal.people import Person, Question, correct, facts, on_topic, questions

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
    keeps_wishes: bool = False
    """memory in place of training: the newest wish follows each new question"""
    tell: Callable[[str], None] = print
    wish: str = ""
    hits: list[bool] = field(default_factory=list)
    number: int = 0
    """steps, and so the version"""

    @classmethod
    def load(cls, overrides: Sequence[str], seed: int, name: str = "smollm2-135m",
             **settled: Any) -> "Trial":
        config = settings.load(RECIPE, (f"seed={seed}", *overrides))
        folder = models.resolve(name)
        policy = model.load(folder, config)
        return cls(config, Chat(folder), policy, Optimiser(policy.parameters, config.train),
                   torch.Generator().manual_seed(seed), **settled)

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
        open_talks = [(who, q, self._opening(q)) for who, q in zip(people, asked, strict=True)]
        samples: list[Sample] = []
        heard: list[str] = []
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
                said = [{"role": "assistant", "content": reply.text}, user(reaction)]
                verdict = _judge(reply, said[1])
                samples.append(self._sample_of(reply, verdict))
                heard += verdict.hints[:1]
                if not hit:
                    going.append((who, question, messages + said))
            open_talks, is_first = going, False
        self.wish = heard[-1] if heard else self.wish
        buffer = Buffer(self.config.async_.max_staleness)
        return [s for s in samples if not buffer.refusal(s)]

    def _opening(self, question: Question) -> list[Message]:
        kept = f"{HINT_MARK}{self.wish}" if self.keeps_wishes and self.wish else ""
        return [user(question.text + kept)]

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
        if self.keeps_wishes:
            return
        size = self.config.train.batch_size
        for at in range(0, len(samples), size):
            version = Version(OWNER, ADAPTER, self.number, None, "0" * 64)
            done = step.run(self.policy, self.optim, samples[at : at + size], self.config,
                            version=version, seed=self.number)
            self.number += 1
            m = done.loss.metrics
            self.tell(f"step {self.number}: {len(samples[at : at + size])} samples, "
                      f"{m['train/opd_samples']:.0f} hinted, "
                      f"length {m['rollout/reply_len_mean']:.0f}, gradient {done.grad_norm:.2f}, "
                      f"lr {done.lr:.1e} {done.skipped}")

    # --- measuring ---------------------------------------------------------------------------

    def measure(self, who: Person, repeats: int, every_fact: int) -> dict[str, float]:
        """Rates on the held-out questions, each asked `repeats` times, and on the facts."""
        c, held = self.config.rollout, questions("held") * repeats
        replies = self.answer([self._opening(q) for q in held], c.max_tokens, c.temperature)
        pairs = list(zip(held, replies, strict=True))
        known = facts()[::every_fact]
        answers = self.answer([[user(f.text)] for f in known], FACT_TOKENS, 0.0)
        return {
            "hits": mean([who.is_hit(q, r.text) for q, r in pairs]),
            "taste": mean([not who.unmet(r.text) for _, r in pairs]),
            "topic": mean([on_topic(q, r.text) for q, r in pairs]),
            "tokens": mean([len(r.ids) for r in replies]),
            "facts": mean([correct(f, a.text) for f, a in zip(known, answers, strict=True)]),
            "perplexity": self.perplexity(),
        }

    @torch.inference_mode()
    def perplexity(self, length: int = 512, count: int = 8) -> float:
        """exp of the mean negative log-prob of `count` pieces of plain prose, `length` tokens each:
        text that has nothing to do with any taste."""
        ids = torch.tensor(self.chat.tokenizer.encode(prose()).ids)[: length * count]
        blocks = ids.view(count, length)
        with self._merged():
            losses = [float(self.policy.lm(input_ids=b[None], labels=b[None]).loss) for b in blocks]
        return math.exp(sum(losses) / count)


@cache
def prose() -> str:
    """The paragraphs of this project's pages: no tables, no code, no lists."""
    pages = sorted((Path(__file__).parents[1] / "docs").glob("*.md"))
    parts = "\n\n".join(page.read_text("utf-8") for page in pages).split("\n\n")
    return "\n\n".join(p for p in parts if re.match(r"[A-Z]", p) and len(p) > 200)


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def _judge(reply: Reply, next_message: Message) -> Verdict:
    case = Case("trial", tuple(reply.messages), {"role": "assistant", "content": reply.text},
                (next_message,))
    return asyncio.run(RulesJudge().judge(case))


def mean(values: Sequence[Any]) -> float:
    return float(np.mean(values)) if len(values) else 0.0
