"""The conformance kit: whether a plugin keeps the contract, and where it does not.

    claw plugin check my-env                      from the command line

    def test_conformance(claw_conformance):       in the plugin's tests: nine tests, one a group
        claw_conformance("my-env")

    from claw.sdk.testing import check, play      at hand
    report = check("my-env", {"tasks": 3})
    played = await play(plugin, settings, task, ["first reply", "second reply"])

The fixture comes with claw-rl (`claw.sdk.testing.pytest_plugin`); there is nothing to import.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from claw.sdk.testing.attempt import Played, play, play_gold
    from claw.sdk.testing.criteria import Criterion, Report
    from claw.sdk.testing.kit import check
    from claw.sdk.testing.proof import Proof, prove

__all__ = ["Criterion", "Played", "Proof", "Report", "check", "play", "play_gold", "prove"]

_ROOM = {
    "Criterion": "criteria", "Report": "criteria", "check": "kit", "Played": "attempt",
    "play": "attempt", "play_gold": "attempt", "Proof": "proof", "prove": "proof",
}


def __getattr__(name: str) -> Any:
    """Load a part when it is asked for: every pytest run on a machine with claw imports this."""
    if name not in _ROOM:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found = getattr(import_module(f"{__name__}.{_ROOM[name]}"), name)
    globals()[name] = found
    return found
