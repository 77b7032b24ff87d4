"""Words the user types -> one function call each. Heavy imports happen inside the commands."""

import logging
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from claw import __version__
from claw.errors import ClawError, UsageError

app = typer.Typer(
    name="claw", no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False,
    help="Train LLM agents from what happens after they act, while they keep serving.",
)
config_app = typer.Typer(no_args_is_help=True, help="Look at settings.")
plugin_app = typer.Typer(no_args_is_help=True, help="Write, list and check environment plugins.")
judge_app = typer.Typer(no_args_is_help=True, help="How far a judge can be believed.")
env_app = typer.Typer(no_args_is_help=True, help="Look at tasks, prove them, host them.")
people_app = typer.Typer(
    no_args_is_help=True, help="Who has a key to a run; each has an adapter of their own.")
quarantine_app = typer.Typer(
    no_args_is_help=True, help="Turns that were held back before they taught.")
app.add_typer(config_app, name="config")
app.add_typer(plugin_app, name="plugin")
app.add_typer(env_app, name="env")
app.add_typer(judge_app, name="judge")
app.add_typer(people_app, name="people")
app.add_typer(quarantine_app, name="quarantine")

Words = Annotated[list[str] | None, typer.Argument(
    metavar="[FILE.toml] [a.b=c]...", help="A settings file, and settings that override it.",
)]
PluginName = Annotated[str, typer.Option("--plugin", "-p", help="Environment plugin to run.")]
Model = Annotated[str, typer.Option("--model", "-m", help="Known name, folder or hub name.")]
OpenClaw = Annotated[bool, typer.Option(
    "--openclaw", help="Print the configuration block for OpenClaw when ready.")]
Preset = Annotated[str, typer.Option(
    help="Settings for a card that serves and trains: 8gb, 16gb, 24gb or 80gb.")]
Cluster = Annotated[str, typer.Option(
    help="ray: place workers and environments on the nodes of a Ray cluster.")]
Run = Annotated[str, typer.Option("--run", "-r", help="Run folder or name; default: the newest.")]

Held = Annotated[list[str] | None, typer.Argument(
    metavar="[TURN]...", help="Turn ids, as `claw quarantine list` prints them.",
)]
All = Annotated[bool, typer.Option("--all", help="Every turn that is held.")]

Target = Annotated[str, typer.Argument(
    metavar="NAME|PATH", help="A plugin, or a file or folder of tasks that one can read.",
)]
Reader = Annotated[str, typer.Option("--plugin", "-p", help="Plugin that reads PATH.")]
Split = Annotated[str, typer.Option(help="train or eval; default: both.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, nothing else.")]


@app.command()
def train(
    words: Words = None, plugin: PluginName = "", model: Model = "",
    resume: Annotated[Path | None, typer.Option(help="Continue this run folder.")] = None,
    trace_hooks: Annotated[bool, typer.Option(help="Log every hook call of the plugin.")] = False,
    openclaw: OpenClaw = False, preset: Preset = "", cluster: Cluster = "",
) -> None:
    """Serve a policy and train it from what happens next."""
    from claw.engine.report import play

    play(_on(cluster, words, resume), plugin=plugin, model=model, resume=resume,
         trace_hooks=trace_hooks, for_openclaw=openclaw, preset=preset)


def _on(cluster: str, words: list[str] | None, resume: Path | None) -> list[str]:
    if cluster and resume is not None:
        raise UsageError("--cluster has no effect on a run that is continued", found=str(resume),
                         allowed="its own settings")
    return [*(words or []), *([f"cluster.kind='{cluster}'"] if cluster else [])]


@app.command()
def serve(
    words: Words = None, plugin: PluginName = "personal", model: Model = "",
    resume: Annotated[Path | None, typer.Option(help="Continue this run folder.")] = None,
    openclaw: OpenClaw = False, preset: Preset = "",
) -> None:
    """Serve a policy without training it."""
    from claw.engine.report import play

    play(words or [], plugin=plugin, model=model, resume=resume, trains=False,
         for_openclaw=openclaw, preset=preset)


@app.command("eval")
def eval_(
    words: Words = None, plugin: PluginName = "", model: Model = "",
    n: Annotated[int, typer.Option(min=0, help="Attempts at each task; 0: rollout.n.")] = 0,
    split: Annotated[str, typer.Option(help="Which of the plugin's tasks.")] = "eval",
    base_url: Annotated[str, typer.Option(
        help="An OpenAI-compatible endpoint; empty: claw's own workers.")] = "",
    api_key_env: Annotated[str, typer.Option(help="Variable with the endpoint's key.")] = "",
    pass_bar: Annotated[float, typer.Option(help="The outcome from which one passes.")] = 1.0,
    resume: Annotated[Path | None, typer.Option(help="Go on in this folder.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Measure a policy on a plugin's tasks: pass@k, mean reward, traces."""
    from claw.engine.eval.evaluate import Asked
    from claw.engine.eval.show import evaluate

    asked = Asked(split, base_url, api_key_env, pass_bar)
    evaluate(words or [], plugin=plugin, model=model, n=n, asked=asked, resume=resume,
             as_json=json)


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
def view(
    folder: Annotated[Path, typer.Argument(help="A trajectory folder with screens in it.")],
    out: Annotated[Path, typer.Option(help="A .png is a strip, a .gif moves.")] = Path("view.png"),
    width: Annotated[int, typer.Option(min=80, max=1920, help="Pixels of one screen.")] = 480,
    columns: Annotated[int, typer.Option(min=1, max=20, help="Screens in a row.")] = 3,
) -> None:
    """Show the screens of an episode: what was done, and what was seen then."""
    from claw.engine.view import write

    typer.echo(write(folder, out, width=width, columns=columns))


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
def forget(
    session: Annotated[str, typer.Argument(
        help="A session's name, a trace id, or a turn or response id of the conversation.")],
    run: Run = "", owner: str = "default",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    roll_back: Annotated[bool, typer.Option(
        "--roll-back", help="Also serve the newest version that has not learned from it.")] = False,
) -> None:
    """Remove a conversation and all derived from it; name the versions that learned from it."""
    from claw.engine.forget import forget as remove
    from claw.engine.rundir import find

    remove(find(run), session, owner=owner, is_sure=yes, rolls_back=roll_back)


@app.command()
def export(
    folder: Annotated[Path, typer.Argument(help="Where to write.")], run: Run = "",
    version: Annotated[int, typer.Option(help="Number; default: the newest good one.")] = -1,
    merged: Annotated[bool, typer.Option(help="Merge an adapter into full weights.")] = False,
    owner: str = "default",
) -> None:
    """Write a version as a peft folder, or as a whole Hugging Face model."""
    from claw.engine.export import write
    from claw.engine.rundir import find

    typer.echo(write(find(run), version, folder, merged=merged, owner=owner))


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
def keys(
    folder: Annotated[Path, typer.Argument(help="Where to write the key pair.")],
    of: Annotated[Path | None, typer.Option(
        help="Folder of a run's keys: make a pair for one more client of that run.")] = None,
    journal: Annotated[bool, typer.Option(
        "--journal", help="Make the key of an encrypted journal instead.")] = False,
) -> None:
    """Make CURVE keys, which tcp:// sockets need, or the key of an encrypted journal."""
    from claw.engine.wire import CLIENTS, make_keys

    if journal:
        _journal_key(folder, of)
        return
    make_keys(folder, of)
    typer.echo(f"wrote {folder}/wire.public and wire.secret; name the folder in wire.keys")
    if of is not None:
        typer.echo(f"it may connect until {of}/{CLIENTS}/{folder.resolve().name}.public is removed")


def _journal_key(folder: Path, of: Path | None) -> None:
    from claw.engine.cipher import make_key

    if of is not None:
        raise UsageError("--of makes keys of the wire, --journal the key of a journal",
                         found="both", do="name one of them")
    typer.echo(f"wrote {make_key(folder)}; name it in journal.key_file of a new run, and keep a "
               "copy: without it the journal cannot be read")


@app.command()
def doctor(
    words: Words = None,
    run: Annotated[str, typer.Option(help="Say instead what each process of this run waits for; "
                                     "exit code 1 when one of them is gone or silent.")] = "",
    fit: Annotated[str, typer.Option(metavar="MODEL", help="Say instead what this model needs on "
                                     "cards of 8 to 80 GB; reads its config.json only.")] = "",
    preset: Preset = "",
) -> None:
    """Say what this machine has: versions, devices, models, plugins, SGLang's environment."""
    if run:
        if fit or preset:
            raise UsageError("--run is asked alone", found="--fit" if fit else "--preset",
                             do="claw doctor --run DIR, then claw doctor --fit MODEL")
        from claw.engine import waits
        from claw.engine.rundir import find

        raise typer.Exit(waits.show(find(run)))
    if fit:
        from claw.engine import fit_report

        raise typer.Exit(fit_report.show(fit, words or [], preset))
    if preset:
        raise UsageError("--preset has no effect here", do="claw doctor --fit MODEL --preset NAME")
    from claw.engine.doctor import report
    from claw.engine.report import read_config

    for line in report(read_config(words or [], "", "").sglang.python):
        typer.echo(line)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def bench(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Which; without a name they are listed.")] = "",
) -> None:
    """Measure this machine: kernels, wire, serving, ... Further words go to the benchmark."""
    from claw.engine import bench

    if name:
        raise typer.Exit(bench.run(name, context.args))
    for each, said in bench.programs().items():
        typer.echo(f"{each:<10} {said}")


@config_app.command("show")
def config_show(
    words: Words = None, plugin: PluginName = "", model: Model = "", preset: Preset = "",
) -> None:
    """Print the resolved run as JSON."""
    import json

    from claw.config import resolved
    from claw.engine.report import read_config

    typer.echo(json.dumps(resolved(read_config(words or [], plugin, model, preset)), indent=2))


@plugin_app.command("new")
def plugin_new(
    name: Annotated[str, typer.Argument(help="As in: word-games, my_env, MyEnv.")],
    into: Annotated[Path, typer.Option(help="Folder to write claw-env-NAME into.")] = Path(),
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there.")] = False,
) -> None:
    """Write a working plugin that passes its tests at once."""
    from claw.engine.authoring import new_plugin

    new_plugin(name, into, force=force)


@plugin_app.command("list")
def plugin_list() -> None:
    """List installed plugins."""
    from claw.engine.authoring import list_plugins

    list_plugins()


@plugin_app.command("check")
def plugin_check(
    name: Annotated[str, typer.Argument(help="An installed plugin.")], words: Words = None,
    tasks: Annotated[int, typer.Option(min=1, help="How many tasks are played.")] = 3,
    json: Json = False,
) -> None:
    """Run the conformance kit on a plugin: nine groups of checks."""
    from claw.engine.authoring import check_plugin

    if not check_plugin(name, words or [], max_tasks=tasks, as_json=json):
        raise typer.Exit(1)


@judge_app.command("audit")
def judge_audit(run: Run = "", json: Json = False) -> None:
    """Compare a run's votes with the person's thumbs and with each other."""
    from claw.engine.judge_audit import show_audit
    from claw.engine.rundir import find

    show_audit(find(run), as_json=json)


@judge_app.command("test")
def judge_test(
    words: Words = None,
    limit: Annotated[int, typer.Option(min=0, help="How many of the 260; 0 is all.")] = 0,
    json: Json = False,
) -> None:
    """Run the judge of these settings over labelled next states."""
    from claw.engine.judge_report import test
    from claw.engine.report import read_config

    test(read_config(words or [], "", "").judge, limit=limit, as_json=json)


@quarantine_app.command("list")
def quarantine_list(run: Run = "", owner: str = "default") -> None:
    """List the held turns: why each is held, and the words that would teach."""
    from claw.engine.quarantine import show
    from claw.engine.rundir import find

    show(find(run), owner=owner)


@quarantine_app.command("release")
def quarantine_release(
    turns: Held = None, all_: All = False, run: Run = "", owner: str = "default",
) -> None:
    """Learn from held turns after all, as if nothing had been found."""
    from claw.engine.quarantine import settle
    from claw.engine.rundir import find

    settle(find(run), "release", turns or [], owner=owner, all_=all_)


@quarantine_app.command("drop")
def quarantine_drop(
    turns: Held = None, all_: All = False, run: Run = "", owner: str = "default",
) -> None:
    """Never learn from held turns; what was said stays in the journal."""
    from claw.engine.quarantine import settle
    from claw.engine.rundir import find

    settle(find(run), "drop", turns or [], owner=owner, all_=all_)


@people_app.command("add")
def people_add(
    name: Annotated[str, typer.Argument(help="Small letters, digits and _ . -")], run: Run = "",
    requests_per_minute: Annotated[int, typer.Option(min=0, help="0: no limit.")] = 0,
    tokens_per_day: Annotated[int, typer.Option(
        min=0, help="Of prompts and replies, within 24 hours; 0: no limit.")] = 0,
    admin: Annotated[bool, typer.Option("--admin", help="May see who uses the run.")] = False,
    scopes: Annotated[str, typer.Option(
        help="What the key is for: chat, feedback; and admin, as --admin.")] = "chat,feedback",
) -> None:
    """Let a person in: make their key and print it."""
    from claw.engine.people_report import add
    from claw.engine.rundir import find
    from claw.sdk import Person

    wanted = dict.fromkeys(scope.strip() for scope in scopes.split(",") if scope.strip())
    admin = admin or "admin" in wanted
    wanted.pop("admin", None)
    add(find(run), Person(name, admin, requests_per_minute, tokens_per_day, tuple(wanted)))


@people_app.command("budget")
def people_budget(
    name: Annotated[str, typer.Argument(help="As in: claw people list.")], run: Run = "",
    requests_per_minute: Annotated[int | None, typer.Option(min=0, help="0: no limit.")] = None,
    tokens_per_day: Annotated[int | None, typer.Option(min=0, help="0: no limit.")] = None,
    pause: Annotated[bool | None, typer.Option(
        "--pause/--go-on", help="Answer nothing to the key, or answer again.")] = None,
) -> None:
    """Change what a person may use; it counts from their next request on."""
    from claw.engine.people_report import budget
    from claw.engine.rundir import find

    budget(find(run), name, requests_per_minute, tokens_per_day, pause)


@people_app.command("list")
def people_list(run: Run = "") -> None:
    """List the people of a run: limits, tokens used, newest version."""
    from claw.engine.people_report import show
    from claw.engine.rundir import find

    show(find(run))


@people_app.command("remove")
def people_remove(
    name: Annotated[str, typer.Argument(help="As in: claw people list.")], run: Run = "",
) -> None:
    """End a person's key; what they said and taught stays."""
    from claw.engine.people_report import remove
    from claw.engine.rundir import find

    remove(find(run), name)


@env_app.command("list")
def env_list(
    target: Target, words: Words = None, plugin: Reader = "", split: Split = "",
    limit: Annotated[int, typer.Option(min=0, help="How many; 0 is all.")] = 100,
) -> None:
    """List tasks: split, id, first words."""
    from claw.engine.authoring import list_tasks

    list_tasks(target, plugin, words or [], split, limit)


@env_app.command("inspect")
def env_inspect(
    target: Target, task: Annotated[str, typer.Argument(help="A task's id.")],
    words: Words = None, plugin: Reader = "",
    answer: Annotated[bool, typer.Option("--answer", help="Show the private answer.")] = False,
) -> None:
    """Show a task as the policy meets it: its tools and first messages."""
    from claw.engine.authoring import inspect_task

    inspect_task(target, plugin, words or [], task, answer=answer)


@env_app.command("check")
def env_check(
    target: Target, words: Words = None, plugin: Reader = "", split: Split = "",
    limit: Annotated[int, typer.Option(min=0, help="How many; 0 is all.")] = 0,
    json: Json = False,
) -> None:
    """Prove tasks: the gold solution passes, and a policy that says nothing fails."""
    from claw.engine.authoring import prove_tasks

    if not prove_tasks(target, plugin, words or [], split, limit, as_json=json):
        raise typer.Exit(1)


@env_app.command("host")
def env_host(
    words: Words = None, plugin: PluginName = "",
    connect: Annotated[str, typer.Option(help="Join the run whose runners address this is.")] = "",
    listen: Annotated[str, typer.Option(help="Offer environments here (plugin `remote`).")] = "",
    keys: Annotated[Path | None, typer.Option(help="Folder made by claw keys, for tcp://.")] = None,
) -> None:
    """Host a plugin's environments in this container or on this machine for a run elsewhere."""
    from claw.engine.env_host import run

    run(words or [], plugin=plugin, connect=connect, listen=listen, keys=keys)


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
