"""What a server says of itself before anything is played, and the tasks it gives.

Owns: `/schema` and `/metadata`, seeds -> tasks.
Does not own: sessions (`session`), what an action is (`actions`).
"""

from collections.abc import Iterable
from typing import Any

from claw.errors import UsageError
from claw.records import Message, Task
from claw.sdk.adapters import foreign
from claw.sdk.adapters.openenv.actions import Actions, understood
from claw.sdk.adapters.openenv.settings import OpenenvConfig
from claw.sdk.foreign_json import from_json

ASK_S = 20.0
"""for a page that a server makes of what it knows"""
EVAL_SEEDS = 1_000_000
"""seeds of `eval` begin here"""


def tasks(config: OpenenvConfig, split: str) -> Iterable[Task]:
    """Ask the server what it is, and return a task for each seed of the split."""
    action = page(config, "/schema").get("action")
    actions = understood(config.url, action)
    first = introduction(config, actions)
    is_eval = split == "eval"
    count, begin = (config.eval_tasks, EVAL_SEEDS) if is_eval else (config.tasks, 0)
    return [
        Task(f"openenv-{split}-{i}", tuple(first), metadata={"seed": begin + i, "action": action})
        for i in range(count)
    ]


def introduction(config: OpenenvConfig, actions: Actions) -> list[Message]:
    """The system message: the person's, else the server's description of itself."""
    said = config.prompt or str(page(config, "/metadata", needed=False).get("description") or "")
    said = "\n\n".join(part for part in (said.strip(), actions.how) if part)
    return [{"role": "system", "content": said}] if said else []


def page(config: OpenenvConfig, path: str, *, needed: bool = True) -> dict[str, Any]:
    """Return a JSON object that the server serves; bounded in time and size."""
    httpx = foreign.load("httpx", of="openenv", install="claw-rl[openenv]")
    try:
        with httpx.stream("GET", config.http_url + path, timeout=ASK_S) as answer:
            body = b""
            for part in answer.iter_bytes():
                body += part
                if len(body) > config.max_bytes:
                    raise ValueError(f"more than {config.max_bytes} bytes")
            if not answer.is_success:
                raise ValueError(f"status {answer.status_code}")
        found = from_json(body)
        if not isinstance(found, dict):
            raise ValueError("no JSON object")
        return found
    except (httpx.HTTPError, ValueError) as error:
        if not needed:
            return {}
        raise UsageError(
            f"the OpenEnv server does not answer {path}",
            found=f"{config.http_url}{path}: {type(error).__name__}: {error}",
            allowed="a running OpenEnv server, 0.2 or later",
            do="start it, or correct plugin.openenv.url",
        ) from error
