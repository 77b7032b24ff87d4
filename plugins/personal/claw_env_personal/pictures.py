"""Pictures in a request: passed on where the run's model sees them, else refused with their place.

Owns: asking whether it does, once a request holds one.
Does not own: what a picture may be (the engine), other media (`messages.py`).
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from claw.sdk import Ask, Engine, Event, Message

from .errors import bad


def first_place(messages: Sequence[Message]) -> str:
    """Return where the first picture is, such as `messages[0].content[1]`; empty for none."""
    for i, message in enumerate(messages):
        if isinstance(message["content"], list):
            for j, part in enumerate(message["content"]):
                if part["type"] == "image_url":
                    return f"messages[{i}].content[{j}]"
    return ""


def unseen(at: str, what: str) -> Exception:
    """The refusal of a part that the model cannot read."""
    return bad(f"{at} is {what}; the served model reads text only. Send text parts.", at,
               "unsupported_content")


async def asked(engine: Engine, ask: Ask) -> AsyncGenerator[Event, None]:
    """Ask with pictures, of a model that sees them."""
    if not (await engine.status()).get("takes_pictures"):
        raise unseen(first_place(ask.messages), "an image")
    answer: Any = engine.ask(ask)
    async with aclosing(answer) as events:
        async for event in events:
            yield event
