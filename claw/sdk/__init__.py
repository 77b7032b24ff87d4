"""Everything a plugin author imports. Loads neither torch nor docker."""

from claw.errors import ClawError, UsageError, nearest
from claw.records import FinishReason, Message, Sampling, Signal, Task, Turn
from claw.sdk.app import Ask, Engine, EngineError, Event, People, Person
from claw.sdk.env import Env, EnvTurn, assistant
from claw.sdk.hooks import hookimpl
from claw.sdk.judging import Case, Judge, Verdict

__all__ = [
    "Ask", "Case", "ClawError", "Engine", "EngineError", "Env", "EnvTurn", "Event", "FinishReason",
    "Judge", "Message", "People", "Person", "Sampling", "Signal", "Task", "Turn", "UsageError",
    "Verdict", "assistant", "hookimpl", "nearest",
]
