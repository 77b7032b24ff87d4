"""Fused operations over hidden states and the vocabulary; logits are never kept whole."""

from claw.kernels.hybrid import hybrid_loss  # GRPO + top-k OPD + KL + entropy, with gradients
from claw.kernels.overlap import Overlap, overlap  # how far hints agree with the student's top-k
from claw.kernels.score import Score, score  # log-probs, entropy and exact top-k, no gradient

__all__ = ["Overlap", "Score", "hybrid_loss", "overlap", "score"]
