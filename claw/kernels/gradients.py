"""How the loss hangs in autograd: gradients made with it, or made again when asked for.

T tokens, R rows with a term, H hidden size, V vocabulary size (of this shard).
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from claw.kernels.shard import Shard
from claw.kernels.terms import Terms
from claw.kernels.walk import Sinks, walk


class Made(torch.autograd.Function):
    """Hang ready gradients on the loss; the backward pass scales them in place and gives them away.

    So it can run once: a second copy of the weight's gradient would be most of the memory.
    """

    @staticmethod
    def forward(ctx, hidden, weight, loss, sinks, is_added):
        ctx.dtypes, ctx.is_added = (hidden.dtype, weight.dtype), is_added
        ctx.grads = [sinks.hidden_TH, None if is_added else sinks.weight_VH]
        return loss.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_loss):
        if ctx.grads is None:
            raise RuntimeError(
                "loss.backward: found a second call; allowed: one in mode 'forward', which gives "
                "its gradients away, or mode='recompute' and retain_graph=True"
            )
        if ctx.is_added and float(grad_loss) != 1.0:
            raise RuntimeError(
                f"weight_grad: found an upstream gradient of {float(grad_loss)} after the weight's "
                "gradient was added with 1; allowed: loss.backward(), or mode='recompute'"
            )
        grads, ctx.grads = ctx.grads, None
        scaled = []
        while grads:  # from the list and to the caller, so that nothing holds two at once
            grad, dtype = grads.pop(0), ctx.dtypes[len(scaled)]
            scaled.append(None if grad is None else grad.mul_(grad_loss).to(dtype))
            del grad
        return *scaled, None, None, None


@dataclass(frozen=True)
class Walk:
    """What a second walk over the same rows needs beside the two matrices."""

    terms: Terms
    clip: tuple[float, float]
    rows: int
    shard: Shard
    weight_grad_VH: Tensor | None


class MadeAgain(torch.autograd.Function):
    """Keep no gradient: walk again when the upstream gradient is known, one number or [T].

    It goes into the coefficients of each row, before any product and any rounding.
    """

    @staticmethod
    def forward(ctx, hidden, weight, loss, again):
        ctx.again = again
        ctx.save_for_backward(hidden, weight)
        return loss.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_loss):
        hidden, weight = ctx.saved_tensors
        again: Walk = ctx.again
        want_hidden, want_weight = ctx.needs_input_grad[:2]
        sum_VH = again.weight_grad_VH
        if want_weight and sum_VH is None:
            sum_VH = torch.zeros_like(weight, dtype=torch.float32)
        sinks = Sinks(
            torch.zeros_like(hidden) if want_hidden else None, sum_VH if want_weight else None
        )
        upstream_R = grad_loss.float().expand(len(hidden))[again.terms.rows_R]
        terms = again.terms.scaled(upstream_R)
        walk(hidden, weight, terms, again.clip, again.rows, sinks, again.shard)
        is_returned = want_weight and again.weight_grad_VH is None
        grad_weight = sum_VH.to(weight.dtype) if is_returned else None
        return sinks.hidden_TH, grad_weight, None, None
