"""Sandboxes: where what an agent does can harm nobody. Loads no engine's SDK until one is opened."""

from claw.sdk.sandbox.spec import Mount, Ran, Sandbox, SandboxError, Spec

__all__ = ["Mount", "Ran", "Sandbox", "SandboxError", "Spec", "open_sandbox"]


def open_sandbox(spec: Spec | None = None) -> Sandbox:
    """Open a sandbox; SandboxError when there is no engine or no such image."""
    from claw.sdk.sandbox.container import Container

    return Container(spec or Spec())
