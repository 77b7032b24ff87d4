"""`claw env host`: environments in a container or on another machine.

Owns: the two ways in, and what each is for.
Does not own: the runner (`runner.host`), the served environments (`runner.served`).

`--connect` joins a running actor as one more runner, with the run's settings: for plugins that one
trusts, since whoever speaks to that socket can also end the run. `--listen` offers environments and
nothing else: a runner of the run comes and uses them, and this side can reach nothing of it.
"""

import asyncio
import logging
import signal
from pathlib import Path

from claw import config as settings
from claw.config import RunConfig
from claw.engine import control, wire
from claw.engine.runner import host
from claw.engine.runner.episodes import plays
from claw.engine.runner.served import Served
from claw.errors import UsageError
from claw.sdk import registry

log = logging.getLogger(__name__)


def run(words: list[str], *, plugin: str, connect: str, listen: str, keys: Path | None) -> None:
    """Host `plugin` until SIGTERM, Ctrl-C, or the end of the run that it joined."""
    if bool(connect) == bool(listen):
        raise UsageError("one way in", found="both" if connect else "none",
                         allowed="--connect ADDRESS (join a run) or --listen ADDRESS (be asked)")
    if not plugin:
        raise UsageError("no plugin named", do="claw env host --plugin NAME ...")
    _configure_log()
    if connect:
        host.run(joined(words, plugin, connect, keys), actor=connect, run_dir=Path("."),
                 api_key="", ready=None, watches_parent=False)
    else:
        if words:
            raise UsageError("settings have no effect at --listen", found=" ".join(words),
                             do="the run that uses it sends them: plugin.remote.settings")
        asyncio.run(_listen(plugin, listen, keys))


def joined(words: list[str], plugin: str, connect: str, keys: Path | None) -> RunConfig:
    """Return the settings of the run at `connect`, with those of this machine over them."""
    pair = wire.read_keys(keys) if keys else None
    wire.check_address(connect, pair)
    values = dict(control.ask(connect, "settings", keys=pair)["config"])
    if values.get("plugin_name") != plugin:
        raise UsageError(
            f"the run plays another plugin than {plugin!r}",
            found=str(values.get("plugin_name")), do="name that one, or start a run of this one",
        )
    values["wire"] = dict(values["wire"]) | {"keys": str(keys or "")}
    files = [w for w in words if "=" not in w]
    if len(files) > 1:
        raise UsageError("more than one settings file", found=" ".join(files), allowed="one")
    config = settings.load(Path(files[0]) if files else None,
                           tuple(w for w in words if "=" in w), base=values)
    loaded = registry.load(plugin)
    if loaded.has("claw_app") or not plays(loaded):
        raise UsageError(f"plugin {plugin!r} has no environments to host",
                         allowed="a plugin with claw_tasks and claw_env, and no app")
    loaded.settings(config.plugin.get(plugin, {}))
    return config


async def _listen(plugin: str, address: str, keys: Path | None) -> None:
    loaded = registry.load(plugin)
    if not plays(loaded):
        raise UsageError(f"plugin {plugin!r} has no environments to host",
                         allowed="a plugin with claw_tasks and claw_env")
    served = Served(loaded, address, wire.read_keys(keys) if keys else None)
    serving = asyncio.create_task(served.run())
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, serving.cancel)
    log.info("plugin %s listens at %s", plugin, address)
    await asyncio.gather(serving, return_exceptions=True)
    if not serving.cancelled() and (error := serving.exception()) is not None:
        raise error


def _configure_log() -> None:
    logging.getLogger("claw").setLevel(logging.INFO)
