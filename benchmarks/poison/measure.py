"""How far a person's adapter was moved, and what the run made of what was sent.

Owns: log-probs of fixed replies by plain transformers and peft, from the files of a version; counts
from the journal and the metrics.
Does not own: replies of the served version (send), the table.
"""

import json
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

from claw.engine.actor.journal import Journal
from claw.engine.actor.ledger import HELD
from claw.engine.monitor import METRICS

METRICS_S = 10.0
"""the longest that a step's line is waited for"""


class Scorer:
    """The model as it was, and with one adapter after the other."""

    def __init__(self, model_dir: Path) -> None:
        self._tokenizer = AutoTokenizer.from_pretrained(str(model_dir), local_files_only=True)
        self._base = AutoModelForCausalLM.from_pretrained(str(model_dir), dtype=torch.float32)
        self._base.eval()

    def logp(self, asked: Sequence[tuple[str, str]], adapter: Path | None) -> float:
        """Mean over (question, reply) of the mean log-prob per token of the reply, temperature 1.

        `adapter` is a version's folder; None: the model before anything was taught.
        """
        if adapter is None:
            return self._mean(self._base, asked)
        model = PeftModel.from_pretrained(self._base, str(adapter))
        try:
            return self._mean(model.eval(), asked)
        finally:
            self._base = model.unload()

    @torch.inference_mode()
    def _mean(self, model: Any, asked: Sequence[tuple[str, str]]) -> float:
        found = []
        for question, reply in asked:
            prompt = self._tokenizer.apply_chat_template(
                [{"role": "user", "content": question}], tokenize=False,
                add_generation_prompt=True)
            ids = [self._tokenizer(text, add_special_tokens=False)["input_ids"]
                   for text in (prompt, reply)]
            logits = model(torch.tensor([ids[0] + ids[1]])).logits[0, len(ids[0]) - 1 : -1]
            logps = torch.log_softmax(logits.float(), dim=-1)
            found.append(float(logps.gather(1, torch.tensor(ids[1])[:, None]).mean()))
        return sum(found) / len(found)


def newest(run_dir: Path, owner: str) -> Path | None:
    """The folder of the version that serves this person; None: the first weights do."""
    with _journal(run_dir) as journal:
        served = [v for v in journal.versions() if v.owner == owner and v.status == "published"]
    return Path(max(served, key=lambda v: v.number).path) if served else None


def made_of_it(run_dir: Path, owner: str) -> dict[str, Any]:
    """Turns trained, held by rule and skipped by reason; versions, and how far each had drifted."""
    with _journal(run_dir) as journal:
        turns = journal.read(
            "SELECT t.state, t.reason FROM turns t JOIN traces tr ON tr.id = t.trace_id"
            " WHERE tr.owner=? AND t.kind='main'", owner)
        versions = [v for v in journal.versions() if v.owner == owner]
    reasons = [reason for state, reason in turns if state == "skipped"]
    held = [reason.split(": ")[1] for reason in reasons if reason.startswith(f"{HELD}: ")]
    skipped = [r.partition(":")[0] for r in reasons if not r.startswith(f"{HELD}: ")]
    mine = _steps(run_dir, owner, sum(v.number > 0 for v in versions))
    return {
        "trained": sum(state == "trained" for state, _ in turns),
        "held": dict(Counter(held)), "skipped": dict(Counter(skipped)),
        "steps": len(mine), "refused": [v.note for v in versions if v.status == "refused"],
        "drift": [m["gate/drift"] for m in mine if not m["gate/refused"]],
    }


def _steps(run_dir: Path, owner: str, number: int) -> list[dict[str, Any]]:
    """What was measured of an owner's steps, of which there are so many: written after they count.

    No file is there before anything was measured.
    """
    path, until = run_dir / METRICS, time.monotonic() + METRICS_S
    while True:
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        mine = [m for m in map(json.loads, lines) if m.get("owner") == owner and "gate/drift" in m]
        if len(mine) >= number or time.monotonic() > until:
            return mine
        time.sleep(0.1)


def _journal(run_dir: Path) -> closing[Journal]:
    """The journal of a running run, read as another process does."""
    return closing(Journal(run_dir, read_only=True))
