"""The real small model: fetched, served, trained and served again."""

import queue
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from claw import config as settings
from claw.config import RunConfig
from claw.engine.actor.chat import Chat
from claw.engine.monitor import Monitor
from claw.engine.trainer.trainer import Lease, Trainer
from claw.engine.versions import check_version
from claw.engine.worker.backend import Chunk, Done, Generate, load_at_once
from claw.engine.worker.transformers import TransformersBackend, make
from claw.records import Sample, Sampling, Version

pytestmark = pytest.mark.real

QUESTION = ({"role": "user", "content": "What is a volcano?"},)
HINT = "Be brief: write two full sentences, no list."


@pytest.fixture(scope="module")
def run() -> RunConfig:
    return settings.parse({
        "model": "smollm2-135m", "rollout": {"max_tokens": 64},
        "worker": {"context": 512, "slots": 4, "device": "cpu", "threads": 2},
        "lora": {"rank": 8, "alpha": 16.0},
        "train": {"lr": 1e-3, "batch_size": 2, "threads": 2, "device": "cpu"},
        "loss": {"subset": "teacher", "gap_weight": "teacher", "teacher": "base", "k": 8,
                 "truncated": "keep"},
    })


@pytest.fixture(scope="module")
def backend(smollm2_dir: Path, run: RunConfig) -> TransformersBackend:
    return make(run, smollm2_dir)


def generate(backend: TransformersBackend, prompt: np.ndarray, n: int = 24) -> dict:
    """Greedy reply to `prompt` and all that came with it."""
    sampling = Sampling(temperature=0.0, max_tokens=n, logprobs_k=4)
    backend.submit(Generate("one", prompt, sampling, (2,), "", "default", "default", 1e18))
    arrays: dict[str, list[np.ndarray]] = {}
    for _ in range(500):
        for event in backend.step():
            if isinstance(event, Chunk):
                for name, a in event.arrays.items():
                    arrays.setdefault(name, []).append(a)
            if isinstance(event, Done):
                return {name: np.concatenate(parts) for name, parts in arrays.items()}
    raise AssertionError("the reply does not end")


def prompt_ids(folder: Path) -> np.ndarray:
    return Chat(folder).prompt(QUESTION).ids


def test_the_converted_folder_holds_what_the_wheel_promises(smollm2_dir: Path) -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(smollm2_dir, dtype=torch.float32)
    c = model.config
    assert (c.vocab_size, c.hidden_size, c.num_hidden_layers) == (49152, 576, 30)
    assert model.lm_head.weight is model.model.embed_tokens.weight  # tied
    assert all(p.dtype == torch.float32 for p in model.parameters())  # not packed: trainable
    assert Chat(smollm2_dir).render(QUESTION).endswith("<|im_start|>assistant\n")


def test_the_worker_says_what_plain_transformers_says(
    smollm2_dir: Path, backend: TransformersBackend
) -> None:
    from transformers import AutoModelForCausalLM

    prompt = prompt_ids(smollm2_dir)
    got = generate(backend, prompt)
    model = AutoModelForCausalLM.from_pretrained(smollm2_dir, dtype=torch.float32)
    ids = torch.tensor([[*prompt.tolist(), *got["ids"].tolist()]])
    with torch.no_grad():
        logps = torch.log_softmax(model(ids).logits[0].float(), -1)[len(prompt) - 1:-1]
    truth = logps.gather(1, torch.tensor(got["ids"], dtype=torch.int64)[:, None])[:, 0]
    assert np.array_equal(got["ids"], logps.argmax(-1).numpy())
    np.testing.assert_allclose(got["logps"], truth.numpy(), atol=1e-3)
    np.testing.assert_allclose(got["topk_logps"], logps.topk(4).values.numpy(), atol=1e-3)


class QuietLink:
    """A link to nobody."""

    def __init__(self) -> None:
        self.stopping, self.requests = threading.Event(), queue.Queue()

    def state(self, name: str, step: int) -> None: ...

    def send(self, message: object) -> None: ...

    def announce(self, version: Version) -> None: ...


def test_a_step_with_a_hint_is_published_and_served(
    smollm2_dir: Path, backend: TransformersBackend, run: RunConfig, tmp_path: Path
) -> None:
    prompt = prompt_ids(smollm2_dir)
    before = generate(backend, prompt, 40)
    sample = _sample(prompt, before, Chat(smollm2_dir).hinted(QUESTION, (), HINT))
    trainer = Trainer(run, smollm2_dir, tmp_path, QuietLink(), Monitor(tmp_path, run.track, {}))
    trainer.begin(resume=False)
    losses = []
    for i in range(2):
        update, version, why = trainer.train(Lease(f"lease_{i}", [sample], {}))
        assert not why
        losses.append(update.loss.opd)
    assert losses[1] < losses[0]  # the hinted teacher and the student have come closer
    loaded = load_at_once(backend, version, check_version(Path(version.path)))
    assert loaded.mismatch_max < run.gate.canary_tolerance
    after = generate(backend, prompt, 8)
    assert set(after["versions"].tolist()) == {version.number}
    assert not np.allclose(after["logps"][:1], before["logps"][:1], atol=1e-4)


def _sample(prompt: np.ndarray, reply: dict, hinted: np.ndarray) -> Sample:
    n = len(reply["ids"])
    return Sample(
        id="sample_1", turn_id="turn_1", trace_id="trace_1", owner="default", adapter="default",
        prompt_ids=prompt, reply_ids=reply["ids"], logps=reply["logps"], mask=np.ones(n, bool),
        advantages=np.zeros(n, np.float32), versions=reply["versions"], temperature=1.0,
        has_advantage=False, hints=(hinted,),
    )
