"""Sandboxes: where what an agent does can harm nobody. Loads no SDK until one is opened."""

from claw.sdk.sandbox.pool import Pool
from claw.sdk.sandbox.spec import (
    ROOT_CAPABILITIES,
    Mount,
    Ran,
    Sandbox,
    SandboxError,
    Spec,
)

__all__ = [
    "ROOT_CAPABILITIES", "Mount", "Pool", "Ran", "Sandbox", "SandboxError", "Spec", "open_sandbox",
]


def open_sandbox(spec: Spec | None = None) -> Sandbox:
    """Open a sandbox; SandboxError when there is no engine or no such image."""
    spec = spec or Spec()
    if spec.engine == "bwrap":
        from claw.sdk.sandbox.jail import Jail

        return Jail(spec)
    from claw.sdk.sandbox.container import Container

    return Container(spec)
