"""Words the user types -> one function call each. Heavy imports happen inside the commands."""

import logging
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from claw import __version__
from claw.errors import ClawError

app = typer.Typer(
    name="claw", no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False,
    help="Train LLM agents from what happens after they act, while they keep serving.",
)
config_app = typer.Typer(no_args_is_help=True, help="Look at settings.")
plugin_app = typer.Typer(no_args_is_help=True, help="Look at installed environment plugins.")
app.add_typer(config_app, name="config")
app.add_typer(plugin_app, name="plugin")

Words = Annotated[list[str] | None, typer.Argument(
    metavar="[FILE.toml] [a.b=c]...", help="A settings file, and settings that override it.",
)]
PluginName = Annotated[str, typer.Option("--plugin", "-p", help="Environment plugin to run.")]
Model = Annotated[str, typer.Option("--model", "-m", help="Known name, folder or hub name.")]
Run = Annotated[str, typer.Option("--run", "-r", help="Run folder or name; default: the newest.")]


@app.command()
def train(
    words: Words = None, plugin: PluginName = "", model: Model = "",
    resume: Annotated[Path | None, typer.Option(help="Continue this run folder.")] = None,
    trace_hooks: Annotated[bool, typer.Option(help="Log every hook call of the plugin.")] = False,
) -> None:
    """Serve a policy and train it from what happens next."""
    from claw.engine.report import play

    play(words or [], plugin=plugin, model=model, resume=resume, trace_hooks=trace_hooks)


@app.command()
def serve(
    words: Words = None, plugin: PluginName = "personal", model: Model = "",
    resume: Annotated[Path | None, typer.Option(help="Continue this run folder.")] = None,
) -> None:
    """Serve a policy without training it."""
    from claw.engine.report import play

    play(words or [], plugin=plugin, model=model, resume=resume, trains=False)


@app.command()
def why(
    turn: Annotated[str, typer.Argument(help="Turn id or response id.")], run: Run = "",
) -> None:
    """Tell the whole story of one turn: captured, judged, trained, and why."""
    from claw.engine.actor.why import story
    from claw.engine.rundir import find

    for line in story(find(run), turn):
        typer.echo(line)


@app.command()
def turns(
    run: Run = "", last: Annotated[int, typer.Option(help="How many.")] = 20,
) -> None:
    """List the newest turns with their states."""
    from claw.engine.report import show_turns
    from claw.engine.rundir import find

    show_turns(find(run), last)


@app.command()
def versions(run: Run = "") -> None:
    """List the versions of a run: number, parent, status, what made them."""
    from claw.engine.report import show_versions
    from claw.engine.rundir import find

    show_versions(find(run))


@app.command()
def rollback(
    to: Annotated[int, typer.Argument(help="Number of the version to serve again.")],
    run: Run = "", owner: str = "default", adapter: str = "default",
) -> None:
    """Serve an earlier version again, as a new version whose parent it is."""
    from claw.engine.report import roll_back
    from claw.engine.rundir import find

    roll_back(find(run), owner=owner, adapter=adapter, to=to)


@app.command()
def export(
    folder: Annotated[Path, typer.Argument(help="Where to write.")], run: Run = "",
    version: Annotated[int, typer.Option(help="Number; default: the newest good one.")] = -1,
    merged: Annotated[bool, typer.Option(help="Merge an adapter into full weights.")] = False,
) -> None:
    """Write a version as a peft folder, or as a whole Hugging Face model."""
    from claw.engine.export import write
    from claw.engine.rundir import find

    typer.echo(write(find(run), version, folder, merged=merged))


@app.command()
def worker(
    kind: Annotated[str, typer.Argument(help="transformers, sglang or scripted.")] = "transformers",
    connect: Annotated[str, typer.Option(help="The actor's workers address.")] = "",
    announcements: Annotated[str, typer.Option(help="The trainer's versions address.")] = "",
    weights: Annotated[str, typer.Option(help="Where the trainer gives out versions' files; "
                                         "needed on another host.")] = "",
    model: Model = "smollm2-135m", words: Words = None, name: str = "worker-extra",
) -> None:
    """Join a running actor as one more rollout worker."""
    from claw.engine.report import join_as_worker

    join_as_worker(kind, connect, announcements, model, words or [], name, weights)


@app.command()
def keys(folder: Annotated[Path, typer.Argument(help="Where to write the key pair.")]) -> None:
    """Make CURVE keys, which tcp:// sockets need."""
    from claw.engine.wire import make_keys

    make_keys(folder)
    typer.echo(f"wrote {folder}/wire.public and wire.secret; name the folder in wire.keys")


@app.command()
def doctor(words: Words = None) -> None:
    """Say what this machine has: versions, devices, models, plugins, SGLang's environment."""
    from claw.engine.doctor import report
    from claw.engine.report import read_config

    for line in report(read_config(words or [], "", "").sglang.python):
        typer.echo(line)


@config_app.command("show")
def config_show(words: Words = None, plugin: PluginName = "", model: Model = "") -> None:
    """Print the resolved run as JSON."""
    import json

    from claw.config import resolved
    from claw.engine.report import read_config

    typer.echo(json.dumps(resolved(read_config(words or [], plugin, model)), indent=2))


@plugin_app.command("list")
def plugin_list() -> None:
    """List installed plugins."""
    from claw.sdk.registry import installed

    rows = [f"{f.name:<12} {f.distribution} {f.version}" for f in installed()]
    typer.echo("\n".join(rows) or "no plugin is installed; try: pip install claw-env-personal")


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    verbose: Annotated[int, typer.Option("-v", count=True, help="More log lines.")] = 0,
) -> None:
    level = (logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)]
    logging.basicConfig(level=level, format="%(levelname)s %(name)s: %(message)s")
    if version:
        typer.echo(f"claw {__version__}")
        raise typer.Exit


def main() -> Any:
    """Run the command line; a mistake of the user prints without a traceback."""
    try:
        app()
    except ClawError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
