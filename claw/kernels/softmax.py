"""From a reading of the logits to log-probs: numbers [C] and [C, J], never anything [C, V].

C rows of a chunk, J ids of a row.
"""

from dataclasses import dataclass

from torch import Tensor

from claw.kernels.chunk import Reading


@dataclass(frozen=True)
class Softmax:
    """softmax(logits / tau) of some rows, over the whole vocabulary; float32."""

    peak_C: Tensor
    """the largest logit"""
    inv_tau_C: Tensor
    log_sum_C: Tensor
    """log sum_j e^{(logit_j - peak) / tau}"""
    entropy_C: Tensor

    @classmethod
    def of(cls, reading: Reading, inv_tau_C: Tensor) -> "Softmax":
        """H = log(sum) - sum_j p_j z_j."""
        log_sum_C = reading.sum_C.log()
        entropy_C = log_sum_C - reading.dot_C / reading.sum_C
        return cls(reading.peak_C, inv_tau_C, log_sum_C, entropy_C)

    @property
    def lse_C(self) -> Tensor:
        return self.peak_C * self.inv_tau_C + self.log_sum_C

    def logp(self, logits_CJ: Tensor) -> Tensor:
        """log p of the ids that have these logits."""
        scaled_CJ = (logits_CJ - self.peak_C[:, None]) * self.inv_tau_C[:, None]
        return scaled_CJ - self.log_sum_C[:, None]

    def offset(self, peak_C: Tensor) -> Tensor:
        """log p_j - (logit_j - peak) / tau for another peak, the one of a shard."""
        return (peak_C - self.peak_C) * self.inv_tau_C - self.log_sum_C
