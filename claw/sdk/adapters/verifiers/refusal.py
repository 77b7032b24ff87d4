"""Saying no, by name, before anything starts."""

from claw.errors import UsageError

PLAYED = "text and tool calls between one policy and the package's own code"


def refused(package: str, found: list[str]) -> UsageError:
    """Return the error for what a package needs and cannot get."""
    return UsageError(
        f"the verifiers package {package!r} cannot be played", found="; ".join(found),
        allowed=PLAYED, do="take another package, or write an environment (claw.sdk)",
    )
