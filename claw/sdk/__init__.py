"""Everything a plugin author imports. Loads neither torch nor docker."""

from claw.records import Message, Sampling, Signal, Task, Turn
from claw.sdk.app import Ask, Engine, EngineError, Event
from claw.sdk.env import Env, EnvTurn, assistant
from claw.sdk.hooks import hookimpl
from claw.sdk.judging import Case, Judge, Verdict

__all__ = [
    "Ask", "Case", "Engine", "EngineError", "Env", "EnvTurn", "Event", "Judge", "Message",
    "Sampling", "Signal", "Task", "Turn", "Verdict", "assistant", "hookimpl",
]
