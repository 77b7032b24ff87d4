"""The trainer as a process: addresses and folders in, exit code out.

Owns: opening and closing what the loop needs, signals, the spec file.
Does not own: the loop (trainer), what other ranks do (follow), restarting (the launcher).
"""

import logging
import signal
import threading
from pathlib import Path

import torch
import torch.distributed as dist

from claw import config as settings
from claw.config import RunConfig
from claw.engine import pulse, wire
from claw.engine.devices import pick_device
from claw.engine.monitor import Monitor
from claw.engine.trainer import follow, loss, step
from claw.engine.trainer.depot import Depot
from claw.engine.trainer.link import Link, Stopped
from claw.engine.trainer.ranks import Ranks, open_ranks
from claw.engine.trainer.trainer import Trainer, in_hand
from claw.errors import UsageError
from claw.sdk import registry

log = logging.getLogger(__name__)


def run(
    config: RunConfig, *, actor: str, versions: str, model_dir: str, run_dir: str, resume: bool,
    weights: str = "", meeting: str = "",
) -> None:
    """Train until max_steps, SIGTERM or SIGINT, a stop message, or the end of the parent.

    `actor` is the address of the actor's trainer socket, `versions` the one on which versions are
    announced, `weights` the one where workers on other hosts fetch their files.
    `resume` continues from the newest checkpoint of `run_dir`, if there is one.
    With several ranks every one of them calls this; `meeting` is the file through which they find
    each other, and only the first speaks to anybody else.
    ClawError: the actor is silent for wire.dead_after_s, or the settings cannot be honoured.
    """
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    if config.train.threads:
        torch.set_num_threads(config.train.threads)
    _learn_method(config)
    ranks = Ranks()
    if config.train.ranks > 1:
        ranks = open_ranks(meeting, pick_device(config.train.device).type)
    try:
        if ranks.is_first:
            begun = Path(f"{meeting}.begun") if meeting else None
            _lead(config, actor, versions, Path(model_dir), Path(run_dir), resume, weights, ranks,
                  begun)
        else:
            _follow(config, Path(model_dir), ranks)
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def _follow(config: RunConfig, model_dir: Path, ranks: Ranks) -> None:
    """The first rank says when this one ends: within a step nobody can be missed."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    follow.follow(*in_hand(model_dir, config, ranks), config)


def _lead(
    config: RunConfig, actor: str, versions: str, model_dir: Path, folder: Path, resume: bool,
    weights: str, ranks: Ranks, begun: Path | None,
) -> None:
    """`begun`: a file that says that ranks which were started before these have begun the run."""
    monitor = Monitor(folder, config.track, settings.resolved(config))
    keys = wire.keys_of(config.wire.keys)
    link = Link(actor, versions, beat_s=config.wire.heartbeat_s,
                dead_after_s=config.wire.dead_after_s, keys=keys)
    depot = (Depot(folder / "versions", weights, keys, config.train.device) if weights
             else None)
    try:
        _end_politely(link)
        trainer = Trainer(config, model_dir, folder, link, monitor, ranks)
        trainer.begin(resume=resume or (begun is not None and begun.exists()))
        if begun is not None:
            begun.touch()
        trainer.run()
        ranks.tell(follow.END)
    except (Stopped, step.Abandoned):
        log.info("stopped; the run continues from its newest checkpoint")
        ranks.tell(follow.END)
    finally:
        pulse.rest(pulse.WORK)
        if depot is not None:
            depot.close()
        link.close()
        monitor.close()


def _learn_method(config: RunConfig) -> None:
    """A method that is not in the table comes from the plugin, or the run ends here."""
    if config.train.method not in loss.METHODS and config.plugin_name:
        registry.load(config.plugin_name).hook.claw_loss(register=loss.register)
    if config.train.method not in loss.METHODS:
        raise UsageError(
            "no such training method", found=f"train.method = {config.train.method!r}",
            allowed=", ".join(loss.METHODS), do="name one of them, or a plugin that brings it",
        )


def _end_politely(link: Link) -> None:
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: link.stopping.set())
