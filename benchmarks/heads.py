"""Ways to compute the loss at the head of a language model, for `benchmarks.kernels` to compare.

Owns: the case (matrices, ids, log-probs of one seed), the variants, their truth in float64.
Does not own: processes, clocks, tables.

T tokens, H hidden size, V vocabulary size, K ids of a token. A variant takes a case and does one
forward and backward pass (tasks `ce` and `hybrid`) or one scoring pass (`score`).
"""

import importlib.util
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from claw.kernels import backend, hybrid_loss, score

CHUNK = 256
"""tokens of the peers that are chunked here"""


@dataclass
class Case:
    hidden: Tensor
    """[T, H], wants a gradient"""
    weight: Tensor
    """[V, H], wants a gradient"""
    ids: Tensor
    topk_ids: Tensor
    """[T, K], the sampled id not among them"""
    old: Tensor
    """[T, 1 + K] log-probs, a little off the current ones"""
    current: Tensor
    """[T] of the sampled ids, as they are"""
    advantage: Tensor
    """[T, 1 + K]"""

    @property
    def all_ids(self) -> Tensor:
        return torch.cat([self.ids[:, None], self.topk_ids], dim=1)

    def part(self, tokens: int) -> "Case":
        """The first tokens, as leaves of their own."""
        hidden = self.hidden.detach()[:tokens].clone().requires_grad_()
        rest = (self.ids, self.topk_ids, self.old, self.current, self.advantage)
        return Case(hidden, self.weight, *(values[:tokens] for values in rest))


@torch.no_grad()
def make(
    tokens: int, hidden: int, vocab: int, k: int, dtype: torch.dtype, device: str, peaked: bool
) -> Case:
    """`peaked`: the hidden state points at one id, as in sampled text; else Gaussian logits."""
    generator = torch.Generator(device).manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, device=device)

    weight = (normal(vocab, hidden) * hidden**-0.5).to(dtype)
    states = normal(tokens, hidden)
    ids = torch.randint(vocab, (tokens,), generator=generator, device=device)
    if peaked:
        states += 16 * functional.normalize(weight[ids].float(), dim=1)
    states = states.to(dtype)
    topk_ids = torch.randint(vocab, (tokens, k), generator=generator, device=device)
    topk_ids = torch.where(topk_ids == ids[:, None], (topk_ids + 1) % vocab, topk_ids)
    every = torch.cat([ids[:, None], topk_ids], dim=1)
    slabs = zip(states.split(CHUNK), every.split(CHUNK), strict=True)
    logp = torch.cat(
        [(s @ weight.t()).float().log_softmax(1).gather(1, i) for s, i in slabs]
    )
    return Case(
        states.requires_grad_(), weight.requires_grad_(), ids, topk_ids,
        logp + 0.1 * normal(tokens, 1 + k), logp[:, 0].contiguous(), normal(tokens, 1 + k),
    )  # fmt: skip


def surrogate(logp: Tensor, case: Case) -> Tensor:
    """The clipped loss, summed over ids and averaged over tokens; any float dtype."""
    rho = (logp - case.old).exp()
    held = -case.advantage * rho.clamp(0.8, 1.28)
    return torch.maximum(-case.advantage * rho, held).sum() / len(logp)


def _full(case: Case, task: str) -> Any:
    logits = case.hidden @ case.weight.t()
    logits = logits if logits.dtype == torch.float64 else logits.float()
    if task == "ce":
        return functional.cross_entropy(logits, case.ids)
    logp = logits.log_softmax(dim=1)
    if task == "hybrid":
        return surrogate(logp.gather(1, case.all_ids), case)
    return logp.gather(1, case.all_ids), logits.topk(20, dim=1).indices


def _gathered(case: Case, task: str) -> Any:
    """Full logits without a copy of their log-softmax: what is at the ids, less the log-sum-exp."""
    logits = (case.hidden @ case.weight.t()).float()
    lse = logits.logsumexp(dim=1)
    if task == "ce":
        return (lse - logits.gather(1, case.ids[:, None])[:, 0]).mean()
    logp = logits.gather(1, case.all_ids) - lse[:, None]
    if task == "hybrid":
        return surrogate(logp, case)
    return logp, logits.topk(20, dim=1).indices


@cache
def _compiler() -> Callable[[Case, str], Any]:
    return torch.compile(_full)


def _compiled(case: Case, task: str) -> Any:
    return _compiler()(case, task)


def _checkpointed(case: Case, task: str) -> Tensor:
    def chunk(hidden: Tensor, ids: Tensor) -> Tensor:
        return (hidden @ case.weight.t()).float().log_softmax(dim=1).gather(1, ids)

    ids = case.ids[:, None] if task == "ce" else case.all_ids
    slabs = zip(case.hidden.split(CHUNK), ids.split(CHUNK), strict=True)
    logp = torch.cat([checkpoint(chunk, h, i, use_reentrant=False) for h, i in slabs])
    return -logp.mean() if task == "ce" else surrogate(logp, case)


def _claw(name: str, mode: str = "forward") -> Callable[[Case, str], Any]:
    def run(case: Case, task: str) -> Any:
        with backend.use(name):
            if task == "score":
                found = score(case.hidden.detach(), case.weight.detach(), case.all_ids, 20)
                return found.logp, found.topk_ids
            return _claw_loss(case, task, mode)

    return run


def _claw_loss(case: Case, task: str, mode: str) -> Tensor:
    share = torch.full_like(case.old[:, 0], 1 / len(case.old))
    if task == "ce":  # at a ratio of 1 the policy gradient is that of cross entropy
        return hybrid_loss(
            case.hidden, case.weight, ids=case.ids, old_logp=case.current,
            advantage=torch.ones_like(share), rl_weight=share, mode=mode,
        )[0]  # fmt: skip
    return hybrid_loss(
        case.hidden, case.weight, ids=case.ids, old_logp=case.old[:, 0].contiguous(),
        advantage=case.advantage[:, 0].contiguous(), rl_weight=share, topk_ids=case.topk_ids,
        topk_old_logp=case.old[:, 1:].contiguous(), opd_weight=share,
        topk_advantage=case.advantage[:, 1:].contiguous(), mode=mode,
    )[0]  # fmt: skip


def _torch_linear_ce(case: Case, task: str) -> Tensor:
    return functional.linear_cross_entropy(case.hidden, case.weight, case.ids)


def _liger_ce(case: Case, task: str) -> Tensor:
    from liger_kernel.transformers.functional import liger_fused_linear_cross_entropy

    return liger_fused_linear_cross_entropy(case.hidden, case.weight, case.ids)


@cache
def _liger_loss() -> Any:
    from liger_kernel.chunked_loss import LigerFusedLinearGRPOLoss

    # compiled=False: only the small loss of [tokens] would be compiled, not the products
    return LigerFusedLinearGRPOLoss(beta=0.0, use_ref_model=False, compiled=False,
                                    loss_type="dapo", chunk_size=1)  # fmt: skip


def _liger_grpo(case: Case, task: str) -> Tensor:
    """One sequence a chunk of CHUNK tokens; GRPO at a ratio of 1 has the gradient of CE."""
    rows = len(case.ids) // math.gcd(len(case.ids), CHUNK)
    shape = (rows, len(case.ids) // rows)
    ones = torch.ones(shape, device=case.ids.device)
    return _liger_loss()(
        case.hidden.view(*shape, -1), case.weight, case.ids.view(shape), ones, ones[:, 0],
        old_per_token_logps=case.current.view(shape),
    )[0]  # fmt: skip


TRL_VOCAB = 32_768
"""columns at once, what its trainers take"""


def _trl(case: Case, task: str) -> Tensor:
    from trl.kernels import ChunkedLogProbFunction

    found = ChunkedLogProbFunction.apply(
        case.hidden, case.weight, None, case.ids, 1.0, TRL_VOCAB, None, 1.0, ()
    )
    return -found[0].mean()


def _cce(case: Case, task: str) -> Tensor:
    from cut_cross_entropy import linear_cross_entropy

    return linear_cross_entropy(case.hidden, case.weight, case.ids)


@dataclass(frozen=True)
class Variant:
    run: Callable[[Case, str], Any]
    tasks: tuple[str, ...]
    needs: str = ""
    """a package"""
    gpu_only: bool = False


EVERY = ("ce", "hybrid", "score")
VARIANTS = {
    "eager, full logits": Variant(_full, EVERY),
    "lse and gather, full logits": Variant(_gathered, EVERY),
    "torch.compile, full logits": Variant(_compiled, EVERY),
    "chunks and checkpoint": Variant(_checkpointed, ("ce", "hybrid")),
    "F.linear_cross_entropy": Variant(_torch_linear_ce, ("ce",)),
    "Liger fused linear CE": Variant(_liger_ce, ("ce",), "liger_kernel", gpu_only=True),
    "Liger fused linear GRPO": Variant(_liger_grpo, ("ce",), "liger_kernel"),
    "TRL chunked log-probs": Variant(_trl, ("ce",), "trl"),
    "cut-cross-entropy": Variant(_cce, ("ce",), "cut_cross_entropy", gpu_only=True),
    "claw torch": Variant(_claw("torch"), EVERY),
    "claw triton": Variant(_claw("triton"), EVERY, "triton", gpu_only=True),
    "claw triton, recompute": Variant(
        _claw("triton", "recompute"), ("ce", "hybrid"), "triton", gpu_only=True
    ),
}


def why_not(variant: Variant, task: str, device: str) -> str:
    """Why it is left out; empty if it can run."""
    if task not in variant.tasks:
        return f"no {task}"
    if variant.gpu_only and device == "cpu":
        return "needs a GPU"
    if variant.needs and importlib.util.find_spec(variant.needs) is None:
        return f"{variant.needs} is not installed"
    has = hasattr(functional, "linear_cross_entropy") or variant.run is not _torch_linear_ce
    return "" if has else "not in this torch"


def errors(variant: Variant, case: Case, task: str) -> tuple[dict[str, float], float]:
    """Against float64: of gradients, relative; of log-probs; and the share of wrong top logits.

    -> (the errors, seconds of the pass that is compared, not its first).
    """
    exact = Case(*(v.detach().double() if v.is_floating_point() else v
                   for v in vars(case).values()))  # fmt: skip
    if task == "score":
        return _score_errors(variant, case, exact)
    exact.hidden.requires_grad_()
    exact.weight.requires_grad_()
    _full(exact, task).backward()
    for _ in range(2):
        case.hidden.grad = case.weight.grad = None
        started = time.perf_counter()
        variant.run(case, task).backward()
        seconds = time.perf_counter() - started
    found = {
        name: float((getattr(case, name).grad.double() - getattr(exact, name).grad).norm()
                    / getattr(exact, name).grad.norm())
        for name in ("hidden", "weight")
    }  # fmt: skip
    return found, seconds


@torch.no_grad()
def _score_errors(
    variant: Variant, case: Case, exact: Case
) -> tuple[dict[str, float], float]:
    variant.run(case, "score")
    started = time.perf_counter()
    logp, top = variant.run(case, "score")
    seconds = time.perf_counter() - started
    expected = _full(exact, "score")[0]
    logits = (case.hidden @ case.weight.t()).float()  # the top is that of the rounded logits
    best = logits.sort(dim=1, descending=True).values[:, :20]
    # peers rank ties as they like
    found = logits.gather(1, top).sort(dim=1, descending=True).values
    return {"logp": float((logp.double() - expected).abs().max()),
            "top": float((found != best).double().mean())}, seconds  # fmt: skip
