"""Containers that a run's runner owns, on the real engine."""

from claw.sdk.sandbox import engine, owner


def containers(pid: int) -> list[str]:
    """Containers that a process of this number owns."""
    found = engine.api().containers(all=True, filters={"label": owner.OWNER})
    return [c["Id"] for c in found if str(pid) in c["Labels"][owner.OWNER].split()]
