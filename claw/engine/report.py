"""What a person sees of a run in the terminal; each function serves one command.

Owns: the words and tables. Does not own: processes (launch) or the journal (actor).
"""

import logging
import signal
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from claw import config as settings
from claw import presets
from claw.config import RunConfig
from claw.engine import control, quantize, wire
from claw.engine.rundir import RunDir
from claw.errors import ClawError, UsageError, nearest
from claw.records import new_id

log = logging.getLogger(__name__)
console = Console(highlight=False)
ID_WIDTH = len(new_id("turn"))
LEAST_TEXT = 16
"""characters of a request and of a reply that are shown on the narrowest terminal"""


def say(text: str) -> None:
    """Print without breaking lines: paths, keys and commands are there to be copied."""
    console.print(text, soft_wrap=True)


# --- settings --------------------------------------------------------------------------------


def read_config(words: list[str], plugin: str, model: str, preset: str = "") -> RunConfig:
    """Settings from a command line: a preset, at most one TOML file, then `a.b=c` overrides."""
    files = [w for w in words if "=" not in w]
    if len(files) > 1:
        raise UsageError("more than one settings file", found=" ".join(files), allowed="one")
    overrides = [w for w in words if "=" in w]
    overrides += [f'plugin_name="{plugin}"'] if plugin else []
    overrides += [f"model='{model}'"] if model else []
    path = Path(files[0]) if files else None
    base = presets.values(preset)
    config = settings.load(path, tuple(overrides), base)
    if not config.plugin_name:
        return config
    from claw.sdk import registry

    loaded = registry.load(config.plugin_name)
    base = settings.merged(loaded.hook.claw_defaults() or {}, base)
    config = settings.load(path, tuple(overrides), base)
    loaded.settings(config.plugin.get(config.plugin_name, {}))
    _check_names(config, loaded)
    if not config.rollout.host and loaded.has("claw_app"):
        raise UsageError("rollout.host = false has no effect on a plugin with an app",
                         found=config.plugin_name, allowed="a plugin with tasks only")
    return config


def _check_names(config: RunConfig, plugin: Any) -> None:
    """A name that neither claw nor the plugin knows is an error here, not in a child process."""
    asked = (
        ("train.method", config.train.method, settings.METHODS, "claw_loss"),
        ("credit.kind", config.credit.kind, settings.CREDITS, "claw_credit"),
        ("judge.kind", config.judge.kind, settings.JUDGES, "claw_judges"),
    )
    for setting, name, known, hook in asked:
        if name not in known and not plugin.has(hook):
            raise UsageError(
                f"no such {setting}", found=name, allowed=", ".join(known),
                do=nearest(name, list(known)) or f"name one, or install a plugin with {hook}",
            )


# --- train and serve -------------------------------------------------------------------------


def play(
    words: list[str], *, plugin: str, model: str, resume: Path | None, preset: str = "",
    trains: bool = True, trace_hooks: bool = False, for_openclaw: bool = False,
) -> None:
    """Run until the run ends or the person stops it; the first Ctrl-C saves and says where."""
    from claw.engine.launch import Launcher
    from claw.engine.models import resolve

    if resume is not None and preset:
        raise UsageError("--preset has no effect on a run that is continued", found=str(resume),
                         allowed="its own settings")
    if resume is not None:
        run, config = RunDir.open(resume)
    else:
        config = read_config(words, plugin, model, preset)
        if not config.plugin_name:
            raise UsageError("no plugin named", do="claw train --plugin personal")
        quantize.check(config.lora.quantize)
        run = None
    model_dir = resolve(config.model)
    run = run or RunDir.create(config)
    run.hold()
    try:
        launcher = Launcher(config, run, model_dir, trains=trains, resume=resume is not None,
                            trace_hooks=trace_hooks, hosts=config.rollout.host)
        _play(launcher, config, run, for_openclaw)
    finally:
        run.release()


def _play(
    launcher: Any, config: RunConfig, run: RunDir, for_openclaw: bool = False
) -> None:
    say(f"run folder  [bold]{escape(str(run.path))}[/bold]")
    signal.signal(signal.SIGTERM, _interrupt)  # a polite end from outside is a Ctrl-C
    try:
        launcher.start()
        with console.status("starting: actor, worker, trainer, runner"):
            address = launcher.wait_ready()
        _say_ready(address, config, launcher, run)
        if for_openclaw:
            _say_openclaw(address, config, launcher)
        launcher.watch(Follower(launcher, run))
    except KeyboardInterrupt:
        _stop(launcher, run)
        raise
    except ClawError:
        launcher.kill()
        raise
    launcher.stop()
    path = escape(str(run.path))
    say(f"done: nothing is left to do\nsaved in    {path}\n"
        f"take it out: claw export FOLDER --run {path}")


def _interrupt(number: int, frame: Any) -> None:
    raise KeyboardInterrupt


def _say_ready(address: str, config: RunConfig, launcher: Any, run: RunDir) -> None:
    if not config.rollout.host or config.wire.address:
        say(f"runners     [bold]claw env host --plugin {config.plugin_name} --connect "
            f"{launcher.runners}[/bold]" + (" --keys FOLDER" if config.wire.keys else ""))
    if address:
        say(f"base URL    [bold]{address}/v1[/bold]")
        say(f"API key     [bold]{launcher.key}[/bold]   (also in {escape(str(run.path))}/api_key)")
        say(f"model       [bold]{config.serve.model_name}[/bold]   ({escape(config.model)})")
        say("\nPaste these into any OpenAI client and talk. Every reply you correct or "
            "accept teaches it.\nAnother terminal: claw turns | claw versions | "
            "claw why TURN | claw rollback N.  Ctrl-C stops and saves.\n")


def _say_openclaw(address: str, config: RunConfig, launcher: Any) -> None:
    from claw.engine import openclaw
    from claw.sdk import registry

    if not address:
        raise UsageError("--openclaw has no effect on a plugin without an app",
                         found=config.plugin_name, allowed="personal")
    status = launcher.status()
    print(openclaw.told(f"{address}/v1", launcher.key, config.serve.model_name,
                        int(status["context"]), registry.load(config.plugin_name),
                        sees=bool(status["takes_pictures"])), flush=True)  # to be copied as it is


def _stop(launcher: Any, run: RunDir) -> None:
    console.print("\nstopping: the journal and the newest version are kept "
                  "(Ctrl-C again to kill)")
    try:
        launcher.stop()
    except KeyboardInterrupt:
        launcher.kill()
    path = escape(str(run.path))
    say(f"saved in {path}\ncontinue:   claw train --resume {path}")


class Follower:
    """Prints what changed since it looked last: turns by state, steps, versions."""

    def __init__(self, launcher: Any, run: RunDir, every_s: float = 2.0) -> None:
        self.launcher, self.run, self.every_s = launcher, run, every_s
        self._next, self._seen = 0.0, ""
        self._warned: set[str] = set()

    def __call__(self) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + self.every_s
        try:
            status = self.launcher.status(timeout_s=5.0)
        except ClawError:
            return
        line = _line(status)
        if line != self._seen:
            self._seen = line
            console.print(f"{time.strftime('%H:%M:%S')}  {line}")
        for warning in status.get("warnings") or []:
            cause = warning.split(":")[-1]  # the counts in it move on
            if cause not in self._warned:
                self._warned.add(cause)
                console.print(f"[yellow]{warning}[/yellow]")


def _line(status: dict[str, Any]) -> str:
    turns = status.get("turns") or {}
    states = "  ".join(f"{state} {count}" for state, count in sorted(turns.items()) if count)
    trainer = status.get("trainer") or {}
    return (f"v{status.get('version', 0)}  step {trainer.get('step', 0)} "
            f"({trainer.get('state', 'none')})  turns: {states or 'none yet'}")


# --- looking at a run ------------------------------------------------------------------------


def show_turns(run: Path, last: int) -> None:
    """Print the newest turns of a run."""
    from claw.engine.actor.why import turns

    rows = turns(run, last)
    wide = max((len(row["status"]) for row in rows), default=0)
    room = max(console.width - ID_WIDTH - wide - 14, 2 * LEAST_TEXT) // 2
    for row in rows:
        request, reply = (cut(row[name], room) for name in ("request", "reply"))
        line = f"{row['id']}  {row['kind']:<4}  {row['status']:<{wide}}  {request:<{room}}  {reply}"
        say(escape(line))  # not a table: an id is there to be copied, on any terminal


def cut(text: str, width: int) -> str:
    """The first words of a text in one line; a model's bytes must not steer the terminal."""
    plain = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return plain if len(plain) <= width else plain[: width - 1] + "…"


def show_versions(run: Path) -> None:
    """Print the versions of a run."""
    from claw.engine.actor.why import versions

    table = Table(box=None)
    known = versions(run)
    several = ("owner",) if len({v.owner for v in known}) > 1 else ()
    for column in (*several, "version", "parent", "kind", "status", "made", "note"):
        table.add_column(column)
    for v in known:
        made = time.strftime("%m-%d %H:%M:%S", time.localtime(v.created))
        parent = "" if v.parent is None else f"v{v.parent}"
        whose = [v.owner] if several else []
        table.add_row(*whose, f"v{v.number}", parent, v.kind, str(v.status), made, v.note)
    console.print(table)


def roll_back(run: Path, *, owner: str, adapter: str, to: int) -> None:
    """Ask the running trainer to serve version `to` again."""
    reply = ask_run(run, "rollback", {"owner": owner, "adapter": adapter, "to": to}, timeout_s=300)
    console.print(f"v{reply.get('number')} serves the weights of v{to}")


def ask_run(run: Path, type: str, fields: dict[str, Any], *, timeout_s: float) -> dict[str, Any]:
    """Ask the actor of a run that is running."""
    address, config = _addresses(run)["runners"], RunDir.open(run)[1]
    keys = wire.keys_of(config.wire.keys)
    return control.ask(address, type, fields, timeout_s=timeout_s, keys=keys)


def _addresses(run: Path) -> dict[str, str]:
    folder = RunDir(run)
    found = folder.read_json("run.json").get("addresses")
    if not found or not folder.is_held():  # a killed launcher leaves its addresses behind
        raise UsageError("the run is not running", found=str(run),
                         do=f"start it: claw train --resume {run}")
    return dict(found)


def join_as_worker(
    kind: str, connect: str, announcements: str, model: str, words: list[str], name: str,
    weights: str = "",
) -> None:
    """Run a rollout worker in this process until the actor says stop."""
    from claw.engine.models import resolve
    from claw.engine.worker.worker import run

    if not connect:
        raise UsageError("no actor named", do="claw worker --connect ADDRESS (see run.json)")
    config = read_config([*words, f"worker.kind='{kind}'"], "", model)
    run(config, actor=connect, versions=announcements, model_dir=str(resolve(config.model)),
        name=name, weights=weights)
