"""The agent's text with its settings, and the few words that load it.

The text goes through the input, so that it is no part of the command line that `ps` shows.
"""

import inspect
from functools import cache

from claw.sdk.sandbox import agent
from claw.sdk.sandbox.bare import LEASH
from claw.sdk.sandbox.spec import Spec

LOAD = """\
import os
left, text = int(os.environ.pop("CLAW_BYTES")), b""
while left > len(text):
    text += os.read(0, left - len(text)) or os._exit(1)
exec(compile(text, "agent", "exec"))
"""


def program(spec: Spec, *, can_switch: bool = True) -> bytes:
    """Return what the agent's Python reads first."""
    settings = {
        "user": spec.user, "workdir": spec.workdir, "lifetime_s": spec.lifetime_s,
        "capabilities": list(spec.capabilities), "can_switch": can_switch, "env": dict(spec.env),
        "leash": LEASH,
    }
    return f"{_text()}\nmain({settings!r})\n".encode()


@cache
def _text() -> str:
    return inspect.getsource(agent)
