"""What a person puts into OpenClaw's configuration so that it talks to a run.

Owns: the block, whose keys OpenClaw's strict schema knows (2026.6.8 and later).
Does not own: the JavaScript plugin that the block names (a plugin of claw ships it).
"""

import inspect
import json
from pathlib import Path
from typing import Any

from claw.sdk import registry

FOLDER = "openclaw"
"""in a plugin's package: its plugin for OpenClaw"""
NEEDS = 16_384
"""tokens: OpenClaw's own prompt takes about 9,000 before anybody speaks"""
MAX_REPLY = 8192


def block(
    base_url: str, key: str, model: str, context: int, folder: Path | None, *, sees: bool = False
) -> dict[str, Any]:
    """Return the configuration; `folder` holds the JavaScript plugin, if there is one.

    `sees`: the model takes pictures. OpenClaw sends them to no model that does not say so.
    """
    served = {
        "id": model, "name": model, "reasoning": True,
        "input": ["text", "image"] if sees else ["text"],
        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
        "contextWindow": context, "maxTokens": min(MAX_REPLY, max(context // 4, 1)),
        "compat": {"sendSessionAffinityHeaders": True, "supportsPromptCacheKey": True},
    }
    made: dict[str, Any] = {
        "agents": {"defaults": {"model": {"primary": f"claw/{model}"}}},
        "models": {"mode": "merge", "providers": {"claw": {
            "baseUrl": base_url, "apiKey": key, "api": "openai-completions",
            "timeoutSeconds": 600, "models": [served],
        }}},
    }
    if folder is not None:
        made["plugins"] = {
            "load": {"paths": [str(folder)]},
            "entries": {"claw": {"enabled": True, "hooks": {"allowConversationAccess": True}}},
        }
    return made


def told(
    base_url: str, key: str, model: str, context: int, plugin: registry.Plugin, *,
    sees: bool = False,
) -> str:
    """Return the block as text, with what to do with it."""
    lines = ["OpenClaw: put this into ~/.openclaw/openclaw.json (openclaw config validate checks "
             "it), then restart its gateway:",
             json.dumps(block(base_url, key, model, context, plugin_folder(plugin), sees=sees),
                        indent=2)]
    if context < NEEDS:
        lines.append(f"note: OpenClaw's own prompt takes about 9,000 tokens; this model reads "
                     f"{context}. Serve one with a context of {NEEDS} or more.")
    return "\n".join(lines)


def plugin_folder(plugin: registry.Plugin) -> Path | None:
    """Return where the plugin's package holds its plugin for OpenClaw."""
    module = plugin.manager.get_plugin(plugin.name)
    if not inspect.ismodule(module) or module.__file__ is None:
        return None
    folder = Path(module.__file__).parent / FOLDER
    return folder if folder.is_dir() else None
