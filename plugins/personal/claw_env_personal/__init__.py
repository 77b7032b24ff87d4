"""An OpenAI-compatible endpoint in front of the policy; the hooks of the plugin, nothing else."""

from typing import Any

from claw.sdk import Engine, hookimpl

from .settings import PersonalConfig


@hookimpl
def claw_config() -> type[PersonalConfig]:
    """Settings at `[plugin.personal]`."""
    return PersonalConfig


@hookimpl
def claw_app(engine: Engine, config: PersonalConfig, serve: dict[str, Any]) -> Any:
    """Return the endpoint as an ASGI application."""
    from .app import build  # keeps the import of the plugin light

    return build(engine, config, serve)
