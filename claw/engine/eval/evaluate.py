"""One evaluation: its folder, its attempts, and going on where it was stopped.

Owns: which attempts are played, the file of traces, own workers or an endpoint.
Does not own: episodes (`runner`), figures (`score`), what a person sees (`show`).

    runs/eval-<plugin>-<time>/{config.json, eval.json, attempts.jsonl, summary.json, logs/}
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from claw.config import RunConfig
from claw.engine.eval import score
from claw.engine.launch import Launcher
from claw.engine.models import resolve
from claw.engine.rundir import RunDir
from claw.engine.runner.endpoint import Endpoint
from claw.engine.runner.episode import Episode
from claw.engine.runner.episodes import Attempt, Episodes, plays
from claw.engine.runner.measured import MeasuredEngine
from claw.engine.runner.result import Policy, Result
from claw.errors import ClawError, UsageError
from claw.records import End
from claw.sdk import registry, traces
from claw.sdk.traces import AttemptTrace

ATTEMPTS = "attempts.jsonl"
TEND_S = 0.5
OnTrace = Callable[[AttemptTrace], None]


@dataclass(frozen=True, slots=True)
class Asked:
    """What an evaluation is asked, beside the run's settings; kept in its folder."""

    split: str = "eval"
    base_url: str = ""
    """empty: claw's own workers"""
    api_key_env: str = ""
    pass_bar: float = 1.0


class Evaluation:
    """One folder. `play()` as often as it takes; `summary()` at any time."""

    def __init__(self, run: RunDir, config: RunConfig, asked: Asked, *, is_resumed: bool) -> None:
        self.run, self.config, self.asked = run, config, asked
        self._is_resumed = is_resumed
        self.file = run.path / ATTEMPTS
        self.plugin = registry.load(config.plugin_name)
        if not plays(self.plugin):
            raise UsageError(f"plugin {self.plugin.name!r} has no tasks to be measured on",
                             allowed="a plugin with claw_tasks and claw_env")

    @classmethod
    def new(cls, config: RunConfig, asked: Asked) -> "Evaluation":
        """Begin in a new folder."""
        made = cls(RunDir.create(config), config, asked, is_resumed=False)
        made.run.write_json("eval.json", asdict(asked))
        return made

    @classmethod
    def resumed(cls, folder: Path) -> "Evaluation":
        """Go on in a folder that was begun, with its own settings."""
        run, config = RunDir.open(folder)
        values = run.read_json("eval.json")
        if not values:
            raise UsageError("not the folder of an evaluation", found=str(folder),
                             allowed="a folder that claw eval made")
        return cls(run, config, Asked(**values), is_resumed=True)

    # --- playing -----------------------------------------------------------------------------

    def play(self, on_trace: OnTrace, on_ready: Callable[[], None] = lambda: None) -> None:
        """Play every attempt that is not finished; a failed one is played once more."""
        self.run.hold()
        try:
            traces.mend(self.file)
            asyncio.run(self._play(on_trace, on_ready))
            self.run.write_json("summary.json", self.summary())
        finally:
            self.run.release()

    async def _play(self, on_trace: OnTrace, on_ready: Callable[[], None]) -> None:
        playing = asyncio.current_task()
        assert playing is not None, "asyncio.run has a main task"
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, playing.cancel)
        async with self._policy() as policy:
            on_ready()
            episodes = Episodes(policy, self.plugin, self.config, kind="side")
            finished, seen = self.finished(), {}

            def is_wanted(attempt: Attempt) -> bool:
                group = seen.setdefault(attempt.task.id, attempt.group)
                if group != attempt.group:
                    raise ClawError("two tasks have one id", found=attempt.task.id,
                                    do="give each task of the split an id of its own")
                return (attempt.task.id, attempt.number) not in finished

            def ended(attempt: Attempt, episode: Episode, result: Result) -> None:
                trace = _trace(attempt, episode, result)
                traces.append(self.file, trace)
                on_trace(trace)

            await episodes.once(self.asked.split, ended, is_wanted=is_wanted)
            if not seen:
                raise ClawError(
                    f"plugin {self.plugin.name!r} has no tasks in {self.asked.split!r}")

    def finished(self) -> set[tuple[str, int]]:
        """Return (task id, attempt) of those that need not be played again."""
        return {(t.task_id, t.attempt) for t in self.traces() if t.end is not End.FAILED}

    def traces(self) -> list[AttemptTrace]:
        """Return the last trace of each attempt, oldest first."""
        return list({(t.task_id, t.attempt): t for t in traces.read(self.file)}.values())

    def summary(self) -> dict[str, Any]:
        """Return the figures of what was played so far."""
        about = {"plugin": self.plugin.name, "split": self.asked.split, "model": self.config.model,
                 "endpoint": self.asked.base_url or "own workers", "folder": str(self.run.path)}
        made = score.summary(self.traces(), n=self.config.rollout.n, pass_bar=self.asked.pass_bar)
        return about | made

    # --- who answers -------------------------------------------------------------------------

    @asynccontextmanager
    async def _policy(self) -> AsyncIterator[Policy]:
        asked, config = self.asked, self.config
        if asked.base_url:
            key = os.environ.get(asked.api_key_env, "") if asked.api_key_env else ""
            if asked.api_key_env and not key:
                raise UsageError("the key's environment variable is empty",
                                 found=asked.api_key_env, do=f"export {asked.api_key_env}=...")
            async with Endpoint(asked.base_url, config.model, config.rollout, key,
                                config.worker.deadline_s) as endpoint:
                yield endpoint
            return
        launcher = Launcher(config, self.run, resolve(config.model), trains=False, hosts=False,
                            resume=self._is_resumed)
        try:
            launcher.start()
            await asyncio.to_thread(launcher.wait_ready)
            async with _workers(launcher, self.plugin.name, config) as engine:
                yield engine
        finally:
            await asyncio.to_thread(launcher.stop)


@asynccontextmanager
async def _workers(launcher: Launcher, plugin: str, config: RunConfig) -> AsyncIterator[Policy]:
    """The run's own workers; processes that die are started again meanwhile."""
    engine = MeasuredEngine(
        launcher.runners, plugin=plugin, keys=launcher.keys, deadline_s=config.worker.deadline_s,
        heartbeat_s=config.wire.heartbeat_s, dead_after_s=config.wire.dead_after_s,
    )
    await engine.open()
    failed: list[ClawError] = []
    playing = asyncio.current_task()
    assert playing is not None, "entered from a task"

    async def tend() -> None:
        while True:
            await asyncio.sleep(TEND_S)
            try:
                launcher.tend()
            except ClawError as error:  # a process keeps dying
                failed.append(error)
                playing.cancel()
                return

    tending = asyncio.create_task(tend())
    try:
        yield engine
    except asyncio.CancelledError:
        if failed:
            raise failed[0] from None
        raise
    finally:
        tending.cancel()
        await engine.close()


def _trace(attempt: Attempt, episode: Episode, result: Result) -> AttemptTrace:
    turns = tuple(
        {"id": t.turn_id, "finish_reason": t.finish_reason, "usage": t.usage, "version": t.version}
        for t in episode.turns
    )
    return AttemptTrace(
        attempt.task.id, attempt.number, tuple(episode.messages),
        result.end, result.outcome, result.judge, result.failure, tuple(episode.tools), turns,
        tuple(episode.signals), result.num_tokens, round(result.seconds, 3),
    )
