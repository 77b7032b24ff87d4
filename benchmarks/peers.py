"""`python -m benchmarks.peers`: claw beside TRL's GRPOTrainer, one after the other.

Both train a LoRA adapter of the same shape on SmolLM2-135M-Instruct with the same questions, reward
(`benchmarks.brevity`: a checker), group size, samples a step, number of steps, temperature, clip
range, learning rate and optimiser; float32, no KL term, advantages standardised in the group.

    samples/s   samples trained, over the time from the first token sampled to the last step's end:
                sampling and training, neither loading nor a first compilation
    memory      highest sum of the proportional set sizes of the side's processes, looked at each
                second
    reward      of the held-out questions, four answers each, by transformers' own generate with the
                adapter that came out; and of the model as it was

TRL samples a step's replies, then trains on them. claw samples while it trains, so a reply may be
`--staleness` versions old.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.brevity import questions, worth
from benchmarks.control import installed
from benchmarks.machine import describe
from claw.engine import models
from claw.engine.actor.journal import Journal
from claw.errors import ClawError

console = Console(highlight=False)
N, BATCH, TOKENS, RANK, ALPHA = 8, 32, 64, 16, 32.0
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
CLIP = (0.2, 0.28)
BETAS = (0.9, 0.98)
LIMIT_S = 3000.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sides", nargs="*", default=["trl", "claw"], choices=["trl", "claw"])
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--lr", type=float, default=2e-4)
    parser.add_argument("--staleness", type=int, default=2, help="versions, claw only")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--inside", help=argparse.SUPPRESS)  # the folder of TRL's own process
    o = parser.parse_args()
    if o.inside:
        return train_trl(o)
    console.print(f"{describe()}, load {os.getloadavg()[0]:.1f} before the run")
    with TemporaryDirectory(prefix="claw-bench-") as folder:
        rows = {side: _SIDES[side](o, Path(folder)) for side in o.sides}
        before = reward(o, None)
    table = Table("", "samples/s", "seconds", "memory, GB", "reward before", "reward after")
    for side, row in rows.items():
        table.add_row(side, f"{o.steps * BATCH / row['seconds']:.2f}", f"{row['seconds']:.0f}",
                      f"{row['memory'] / 1e9:.2f}", f"{before:.3f}", f"{row['reward']:.3f}")
    console.print(table)


# --- the sides -----------------------------------------------------------------------------------


def run_trl(o: argparse.Namespace, folder: Path) -> dict[str, float]:
    words = [f"--steps={o.steps}", f"--lr={o.lr}", f"--seed={o.seed}", f"--model={o.model}"]
    child = subprocess.Popen([sys.executable, "-m", "benchmarks.peers", *words,
                              f"--inside={folder}"], stdin=subprocess.DEVNULL)
    memory = watched(child, lambda: child.poll() is not None)
    if child.returncode:
        raise SystemExit("TRL's side failed")
    seconds = json.loads((folder / "seconds.json").read_text())
    return {"seconds": seconds, "memory": memory, "reward": reward(o, folder / "adapter")}


def train_trl(o: argparse.Namespace) -> None:
    """What a person of TRL would write, in a process of its own."""
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    class Clock(TrainerCallback):  # type: ignore[misc]
        began = ended = 0.0

        def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
            self.began = time.monotonic()

        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            self.ended = time.monotonic()

    def rewards(completions: list[Any], **_: Any) -> list[float]:
        return [worth(reply[0]["content"]) for reply in completions]

    folder, clock = Path(o.inside), Clock()
    rows = [{"prompt": [{"role": "user", "content": said}]} for said in questions("train")]
    trainer = GRPOTrainer(
        str(models.resolve(o.model)), reward_funcs=rewards, callbacks=[clock],
        train_dataset=Dataset.from_list(rows),
        args=GRPOConfig(
            output_dir=str(folder / "trl"), max_steps=o.steps, num_generations=N,
            per_device_train_batch_size=N, gradient_accumulation_steps=BATCH // N,
            max_completion_length=TOKENS, learning_rate=o.lr, lr_scheduler_type="constant",
            adam_beta1=BETAS[0], adam_beta2=BETAS[1], epsilon=CLIP[0], epsilon_high=CLIP[1],
            loss_type="grpo", beta=0.0, temperature=1.0, gradient_checkpointing=False, seed=o.seed,
            use_cpu=True, bf16=False, save_strategy="no", report_to="none", logging_steps=1,
        ),
        peft_config=LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=TARGETS, lora_dropout=0.0,
                               task_type="CAUSAL_LM"),
    )
    trainer.train()
    trainer.save_model(str(folder / "adapter"))
    (folder / "seconds.json").write_text(json.dumps(clock.ended - clock.began))


def run_claw(o: argparse.Namespace, folder: Path) -> dict[str, float]:
    run = folder / "claw"
    words = [
        f"runs='{folder}'", "name='claw'", f"seed={o.seed}", f"train.max_steps={o.steps}",
        "train.method=grpo", f"train.batch_size={BATCH}", f"train.lr={o.lr}",
        f"train.betas=[{BETAS[0]},{BETAS[1]}]", f"rollout.n={N}", f"rollout.max_tokens={TOKENS}",
        "rollout.max_turns=1", "rollout.temperature=1.0", f"rollout.parallel={BATCH}",
        f"worker.slots={BATCH}", f"lora.rank={RANK}", f"lora.alpha={ALPHA}",
        f"loss.clip_low={CLIP[0]}", f"loss.clip_high={CLIP[1]}", "loss.truncated=keep",
        "judge.kind=brevity", "credit.kind=outcome", "credit.alpha=1.0", "gate.enabled=false",
        f"async.max_staleness={o.staleness}", "async.stale=pace",
    ]
    with installed(folder, "brevity") as path, (folder / "claw.out").open("wb") as out:
        launcher = subprocess.Popen(
            [sys.executable, "-m", "claw", "train", "--plugin", "brevity", "--model", o.model,
             *words],
            stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
            env=os.environ | {"PYTHONPATH": path},
        )
        memory = watched(launcher, lambda: last(run, o.steps) is not None)
        launcher.terminate()
        with suppress(subprocess.TimeoutExpired):
            launcher.wait(120)
    made = last(run, o.steps)
    if made is None:
        said = (folder / "claw.out").read_text(encoding="utf-8", errors="replace")
        raise SystemExit(f"claw's side ended before its last step:\n{said[-2000:]}")
    journal = Journal(run, read_only=True)
    [(began,)] = journal.read("SELECT MIN(created) FROM turns")
    journal.close()
    return {"seconds": made.created - began, "memory": memory,
            "reward": reward(o, Path(made.path))}


def last(run: Path, steps: int) -> Any:
    """The version of the last step, once it is there."""
    from claw.engine.actor.why import versions

    with suppress(ClawError, OSError):
        return next((v for v in versions(run) if v.number == steps), None)


_SIDES: dict[str, Callable[[argparse.Namespace, Path], dict[str, float]]] = {
    "trl": run_trl, "claw": run_claw}


# --- what is measured ----------------------------------------------------------------------------


def watched(child: subprocess.Popen[bytes], is_over: Callable[[], bool]) -> float:
    """Bytes that the child and its children held at most, until it is over."""
    highest, end = 0.0, time.monotonic() + LIMIT_S
    while time.monotonic() < end and child.poll() is None and not is_over():
        highest = max(highest, sum(map(held, family(child.pid))))
        time.sleep(1)
    return highest


def family(pid: int) -> list[int]:
    """A process and all below it."""
    found = [pid]
    for parent in found:
        for path in Path(f"/proc/{parent}/task").glob("*/children"):
            with suppress(OSError):
                found += map(int, path.read_text().split())
    return found


def held(pid: int) -> int:
    """Bytes of memory; what processes share counts in parts."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def reward(o: argparse.Namespace, adapter: Path | None) -> float:
    """Mean reward of the held-out questions."""
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = models.resolve(o.model)
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    policy = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    if adapter is not None:
        policy = PeftModel.from_pretrained(policy, adapter)
    torch.manual_seed(o.seed)
    asked = [[{"role": "user", "content": said}] for said in questions("eval")]
    rows = tokenizer.apply_chat_template(asked, add_generation_prompt=True, padding=True,
                                         return_tensors="pt", return_dict=True)
    with torch.no_grad():
        ids = policy.eval().generate(**rows, do_sample=True, temperature=1.0, top_k=0, top_p=1.0,
                                     max_new_tokens=TOKENS, num_return_sequences=4)
    said = tokenizer.batch_decode(ids[:, rows["input_ids"].shape[1]:], skip_special_tokens=True)
    return sum(map(worth, said)) / len(said)


if __name__ == "__main__":
    main()
