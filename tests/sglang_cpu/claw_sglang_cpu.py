"""SGLang without a GPU: stand-ins for what its own models and adapters take for granted.

A test dependency. It does nothing where there is a GPU. Written for sglang 0.5.23, which
- imports a kernel of vllm at the load of a model, though its plain torch path never calls it;
- pins host memory for adapters, which is an error without a CUDA driver.
"""

import functools
import sys
import types
from collections.abc import Callable
from typing import Any

MAKERS = ("tensor", "empty", "zeros", "ones", "full", "arange", "empty_like", "zeros_like",
          "ones_like", "full_like", "rand", "randn", "randint", "empty_strided")


def register() -> None:
    """What the entry point calls, in every process of SGLang."""
    import torch

    if torch.cuda.is_available():
        return
    _stand_in_for_vllm()
    torch.Tensor.pin_memory = lambda self, *_, **__: self
    for name in MAKERS:
        setattr(torch, name, _unpinned(getattr(torch, name)))


def _stand_in_for_vllm() -> None:
    package, kernels = types.ModuleType("vllm"), types.ModuleType("vllm._custom_ops")

    def rotary_embedding(*_: Any, **__: Any) -> None:
        raise RuntimeError("the CUDA kernel of vllm was called without a GPU")

    kernels.rotary_embedding = rotary_embedding  # type: ignore[attr-defined]
    package._custom_ops = kernels  # type: ignore[attr-defined]
    sys.modules.setdefault("vllm", package)
    sys.modules.setdefault("vllm._custom_ops", kernels)


def _unpinned(make: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(make)
    def made(*args: Any, **options: Any) -> Any:
        options.pop("pin_memory", None)
        return make(*args, **options)

    return made
