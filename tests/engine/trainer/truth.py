"""The step's loss in float64 with whole logits, written from the formulas and nothing of ours.

Slow and plain on purpose: one sequence at a time, loops over tokens, autograd for the gradients.
"""

from typing import Any

import torch

from claw.config import RunConfig
from claw.records import Sample


def logps(lm: Any, prompt: Any, reply: Any, tau: float) -> torch.Tensor:
    """[R, V] log softmax(logits / tau) at the reply positions."""
    ids = torch.tensor([*prompt.tolist(), *reply.tolist()])[None]
    logits = lm(input_ids=ids, use_cache=False).logits[0]
    start = len(prompt) - 1
    return torch.log_softmax(logits[start : start + len(reply)] / tau, dim=-1)


def loss(
    student: Any, teacher: Any, base: Any, samples: list[Sample], c: RunConfig
) -> torch.Tensor:
    """The mean over the whole batch; all three models in float64."""
    method = c.train.method
    parts = [_sample(student, teacher, base, s, c) for s in samples]
    weights = {"rl": c.loss.w_rl, "opd": c.loss.w_opd, "one": 1.0, "kl": c.loss.kl_coef,
               "entropy": -c.loss.entropy_coef}
    wanted = {
        "grpo": ("rl",), "opd": ("opd",), "opd-sampled": ("opd",), "hybrid": ("rl", "opd"),
        "combined": ("one",),
    }[method]
    total = torch.zeros((), dtype=torch.float64)
    for term in (*wanted, "kl", "entropy"):
        tokens = [p[term] for p in parts if len(p.get(term, []))]
        if not tokens or weights[term] == 0:
            continue
        if c.loss.normalise != "token-mean":
            trained = [p for p in parts if any(map(len, p.values()))]
            count = len(tokens if c.loss.normalise == "sample-mean" else trained)
            mean = sum(sum(t) / len(t) for t in tokens) / count
        else:
            mean = sum(sum(t) for t in tokens) / sum(len(t) for t in tokens)
        total = total + weights[term] * mean
    return total


def _sample(student: Any, teacher: Any, base: Any, s: Sample, c: RunConfig) -> dict[str, list]:
    tau = s.temperature or 1.0
    now = logps(student, s.prompt_ids, s.reply_ids, tau)
    old = now.detach()
    method = c.train.method
    has_rl = s.has_advantage and s.temperature > 0 and method not in ("opd", "opd-sampled")
    has_rl = has_rl and not (s.truncated and c.loss.truncated == "mask")
    has_opd = bool(s.hints) and method != "grpo"
    found: dict[str, list] = {"rl": [], "opd": [], "one": [], "kl": [], "entropy": []}
    if has_opd:
        hints = sorted(s.hints, key=len)
        with torch.no_grad():
            views = [logps(teacher, h, s.reply_ids, tau) for h in hints]
        chosen = _choice(old, views, s, c)
    with torch.no_grad():
        first = logps(base, s.prompt_ids, s.reply_ids, tau)
    for t, token in enumerate(s.reply_ids.tolist()):
        if not s.mask[t] or not (has_rl or has_opd):
            continue
        d = first[t, token] - now[t, token]
        found["kl"].append(torch.exp(d) - d - 1)
        found["entropy"].append(-(now[t].exp() * now[t]).sum())
        behaviour = torch.tensor(float(s.logps[t]), dtype=torch.float64)
        if s.temperature == 0:
            behaviour = old[t, token]
        if c.is_.mode == "proximal":
            before = old[t, token]
            weight = torch.exp(before - behaviour).clamp(max=c.is_.cap)
        else:
            before, weight = behaviour, torch.ones(())
        if has_rl:
            a = float(s.advantages[t])
            found["rl"].append(weight * _clipped(now[t, token], before, a, c))
        if has_opd:
            found["opd"].append(_distil(now[t], old[t], views[chosen[t]][t], token, c))
        if method == "combined":
            a = c.loss.w_rl * float(s.advantages[t]) if has_rl else 0.0
            if has_opd:
                a += c.loss.w_opd * float(_gap(views[chosen[t]][t, token], old[t, token], c))
            found["one"].append(weight * _clipped(now[t, token], before, a, c))
    return found


def _gap(teacher: torch.Tensor, old: torch.Tensor, c: RunConfig) -> torch.Tensor:
    bound = c.loss.gap_clip or float("inf")
    return (teacher - old).clamp(-bound, bound)


def _clipped(now: torch.Tensor, old: torch.Tensor, a: float, c: RunConfig) -> torch.Tensor:
    rho = torch.exp(now - old)
    return torch.maximum(-a * rho, -a * rho.clamp(1 - c.loss.clip_low, 1 + c.loss.clip_high))


def _choice(old: torch.Tensor, views: list, s: Sample, c: RunConfig) -> list[int]:
    k, num = c.loss.k, len(s.reply_ids)
    shared = [
        [len(set(old[t].topk(k).indices.tolist()) & set(v[t].topk(k).indices.tolist()))
         if s.mask[t] else 0 for t in range(num)]
        for v in views
    ]
    if c.loss.hint_choice == "shortest":
        return [0] * num
    if c.loss.hint_choice == "sequence":
        sums = [sum(row) for row in shared]
        return [sums.index(max(sums))] * num
    columns = [[row[t] for row in shared] for t in range(num)]
    return [column.index(max(column)) for column in columns]


def _distil(
    now: torch.Tensor, old: torch.Tensor, teacher: torch.Tensor, token: int, c: RunConfig
) -> torch.Tensor:
    if c.train.method == "opd-sampled":
        return _clipped(now[token], old[token], float(_gap(teacher[token], old[token], c)), c)
    q = old.topk(c.loss.k).indices.tolist()
    p = teacher.topk(c.loss.k).indices.tolist()
    subset = {"student": q, "teacher": p, "overlap": [v for v in q if v in p]}[c.loss.subset]
    if not subset:
        return torch.zeros((), dtype=torch.float64)
    share = torch.softmax(old[subset], dim=-1)
    terms = [
        _clipped(now[v], old[v], float(_gap(teacher[v], old[v], c) * w), c)
        for v, w in zip(subset, share, strict=True)
    ]
    return sum(terms)
