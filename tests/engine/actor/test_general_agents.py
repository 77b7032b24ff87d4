"""Environments against a whole actor process: from a reply of an environment to a sample."""

import asyncio
import json
import os
import signal
import subprocess
import sys

import pytest
from test_actor_process import play, settled, state  # noqa: F401 (play is a fixture)

from claw import config as settings
from claw.engine.actor.journal import Journal
from claw.engine.actor.why import story
from claw.engine.runner.engine import WireEngine
from claw.engine.runner.episodes import Episodes
from claw.errors import Boundary, boundary
from claw.records import Task
from claw.sdk import Verdict, hookimpl, registry
from claw.sdk.doubles import DoublePlugin, EchoEnv

HINT = "Call the tool with two numbers instead of text."
ERROR = "TypeError: add() got a str"


class Tool(EchoEnv):
    """Every call fails with a tool's error until the episode is over."""

    def reply(self, turn):
        said = super().reply(turn)
        return said and [{"role": "user", "content": ERROR}]


class Checker:
    """Tests play the judge: a tool's error is a directive signal, the end has an outcome."""

    name, is_checker = "tests", True

    def __init__(self):
        self.outcomes = iter((1.0, 0.0) * 10)

    async def judge(self, case):
        if case.final:
            return Verdict(number=next(self.outcomes), hints=(HINT,), reason="tests ran")
        failed = ERROR in case.next_state[-1]["content"]
        return Verdict(vote=-1 if failed else 1, hints=(HINT,) if failed else (), reason="a call")


class General(DoublePlugin):
    @hookimpl
    def claw_tasks(self, config, split):
        return [Task(f"t{n}", ({"role": "user", "content": f"Add {n}"},))
                for n in range(config.tasks)]


def run_episodes(s, plugin, words=()):
    """Play the train split once against the actor of stage `s`."""
    config = settings.load(overrides=("rollout.n=2", "plugin.double.tasks=1", *words))

    async def work():
        engine = WireEngine(s.addresses["runners"], plugin="double", heartbeat_s=0.2)
        await engine.open()
        try:
            episodes = Episodes(engine, registry.from_object("double", plugin), config)
            return await episodes.once("train")
        finally:
            await engine.close()

    return work()


async def leased(s, count):
    """Lease as the trainer does: again, until there is a step's worth."""
    while True:
        lease, samples, _ = await s.trainer.lease(max_samples=count, max_wait_s=60)
        if lease:
            return lease, samples


def told(run_dir, turn_id):
    return "\n".join(story(run_dir, turn_id))


@pytest.mark.parametrize("kind", ["outcome", "step"])
def test_in_a_group_a_turn_has_its_advantage_and_the_ids_of_its_hint(play, chat, kind):  # noqa: F811
    async def run(s):
        plugin = General(make_env=lambda t: Tool(2, str(t.messages[0]["content"])),
                         judges=[Checker()])
        await run_episodes(s, plugin, ("judge.kind=tests", "rollout.parallel=1"))
        _, samples = await leased(s, 4)
        assert len(samples) == 4
        journal = Journal(s.run_dir, read_only=True)
        for sample in samples:
            turn = journal.turn(sample.turn_id)
            [hint] = sample.hints
            assert hint.tolist() == chat.hinted(turn.messages, turn.tools, HINT).tolist()
            assert HINT in chat.decode(hint) and HINT not in chat.decode(sample.prompt_ids)
            assert sample.has_advantage
        signs = [float(sample.advantages[0]) for sample in samples]
        assert sorted(signs) == pytest.approx([-1, -1, 1, 1], abs=1e-4)
        assert {s.outcome for s in samples if s.advantages[0] > 0} == {1.0}
        journal.close()
        status = await s.runner.question("status")
        assert status["signals"]["checker:tests/hints"] == 4
        assert status["episodes"] == {
            "ended": {"done": 2}, "outcomes": {"checker:tests": {"count": 2, "mean": 0.5}}}
        return samples[0].turn_id

    text = told(play.dir, play(run, credit__kind=kind, rollout__n=2, judge__kind="none"))
    for part in ("checker:tests: ", f"hint: {HINT}", "said by checker:tests", "1 hints"):
        assert part in text, text


def test_a_group_of_equal_outcomes_still_teaches_by_its_hints(play):  # noqa: F811
    async def run(s):
        checker = Checker()
        checker.outcomes = iter((0.0, 0.0))
        plugin = General(make_env=lambda t: Tool(1, "Add"), judges=[checker])
        await run_episodes(s, plugin, ("judge.kind=tests",))
        _, samples = await leased(s, 2)
        assert [(x.has_advantage, len(x.hints)) for x in samples] == [(False, 1)] * 2

    play(run, credit__kind="outcome", rollout__n=2, judge__kind="none")


def test_the_rules_judge_votes_and_the_checkers_last_hint_still_reaches_the_sample(play):  # noqa: F811
    """judge.kind rules in the runner too: the plugin's checker only sees the end."""
    async def run(s):
        plugin = General(make_env=lambda t: Tool(1, "Add"), judges=[Checker()])
        await run_episodes(s, plugin, ("judge.kind=rules",))
        _, samples = await leased(s, 2)
        assert [(x.has_advantage, len(x.hints)) for x in samples] == [(True, 1)] * 2

    play(run, credit__kind="outcome", rollout__n=2)


def test_a_vote_of_the_rules_and_a_later_hint_of_the_checker_are_one_signal(play, chat):  # noqa: F811
    """At a turn limit the actor's judge votes on the last turn; the checker's hint comes after."""
    said = iter(("Thanks, that is perfect!", "No, that is wrong. Answer in one word."))

    class Person(EchoEnv):
        def reply(self, turn):
            return [{"role": "user", "content": self.words}]

    def make(task):
        env = Person(9, "Add")
        env.words = next(said)
        return env

    async def run(s):
        checker = Checker()
        checker.outcomes = iter((0.0, 0.0))
        await run_episodes(s, General(make_env=make, judges=[checker]), (
            "judge.kind=rules", "rollout.max_turns=1", "rollout.parallel=1"))
        _, samples = await leased(s, 2)
        # the outcomes are equal: only the votes, +1 and -1, tell the two apart
        assert sorted(float(x.advantages[0]) for x in samples) == pytest.approx([-1, 1], abs=1e-4)
        assert all(any(HINT in chat.decode(hint) for hint in x.hints) for x in samples)

    play(run, credit__kind="outcome", rollout__n=2)


def test_a_step_keeps_its_index_although_the_turn_before_it_cannot_be_trained(play):  # noqa: F811
    """Trace one: steps 0 and 1. Trace two: step 0 has log-probs that are no numbers."""
    class Votes(Checker):
        async def judge(self, case):
            if case.final:
                return Verdict(vote=-1, number=next(self.outcomes))
            return Verdict(vote=1)

    async def run(s):
        spoilt = []

        def spoil(arrays):
            if len(spoilt) == 0 and s.worker.count == 3:
                spoilt.append(1)
                arrays["logps"] = arrays["logps"] * float("nan")
            return arrays

        s.worker.count = 0

        def reply(prompt):
            s.worker.count += 1
            return "Paris."

        s.worker.reply, s.worker.spoil = reply, spoil
        plugin = General(make_env=lambda t: Tool(2, "Add"), judges=[Votes()])
        await run_episodes(s, plugin, ("judge.kind=tests", "rollout.parallel=1"))
        _, samples = await leased(s, 3)
        journal = Journal(s.run_dir, read_only=True)
        found = {(journal.turn(x.turn_id).index, x.outcome): float(x.advantages[0])
                 for x in samples}
        journal.close()
        # step 1 of both traces is compared: .5*1 - .5 = 0 and .5*0 - .5 = -.5; step 0 is alone:
        # .5*1 + .5*1 = 1
        assert found == {(0, 1.0): 1.0, (1, 1.0): pytest.approx(1, abs=1e-4),
                         (1, 0.0): pytest.approx(-1, abs=1e-4)}

    play(run, credit__kind="step", rollout__n=2, judge__kind="none")


def test_an_attempt_that_is_played_again_counts_once_in_its_group(play):  # noqa: F811
    class Dies(Tool):
        def reply(self, turn):
            if turn.index == 1:
                with boundary(Boundary.SANDBOX):
                    raise RuntimeError("the container is gone")
            return super().reply(turn)

    async def run(s):
        made = []

        def make(task):
            made.append(task)
            return Dies(2, "Add") if len(made) == 1 else Tool(2, "Add")

        plugin = General(make_env=make, judges=[Checker()])
        await run_episodes(s, plugin, ("judge.kind=tests", "rollout.parallel=1"))
        _, samples = await leased(s, 4)
        journal = Journal(s.run_dir, read_only=True)
        reasons = journal.read("SELECT reason FROM turns WHERE state='skipped'")
        journal.close()
        assert [r for (r,) in reasons] == ["episode_played_again"] * 2
        assert len({x.trace_id for x in samples}) == 2 and len(samples) == 4
        status = await s.runner.question("status")
        assert status["episodes"]["ended"] == {"failed/sandbox": 1, "done": 2}

    play(run, credit__kind="outcome", rollout__n=2, judge__kind="none")


def test_a_slow_episode_never_blocks_a_step(play):  # noqa: F811
    """One attempt of the first task hangs; steps are made of the other tasks' groups."""
    free = asyncio.Event()

    class Slow(Tool):
        async def reply(self, turn):
            await free.wait()
            return EchoEnv.reply(self, turn)

    async def run(s):
        made = []

        def make(task):
            made.append(task)
            return Slow(1, "Add") if len(made) == 1 else Tool(1, str(task.messages[0]["content"]))

        plugin = General(make_env=make, judges=[Checker()])
        playing = asyncio.create_task(run_episodes(
            s, plugin, ("judge.kind=tests", "rollout.parallel=3", "plugin.double.tasks=4")))
        for number in range(3):  # three steps while it hangs
            lease, samples = await leased(s, 2)
            assert len(samples) == 2
            await s.trainer.ack(lease, number + 1, step=number + 1)
        assert not playing.done()
        free.set()
        await playing
        _, samples = await leased(s, 2)
        assert len(samples) == 2  # the slow one's group is trained when it is whole

    play(run, credit__kind="outcome", rollout__n=2, judge__kind="none")


# --- one more runner ---------------------------------------------------------------------------

PLUGIN = """
from claw.sdk.doubles import DoublePlugin
_plugin = DoublePlugin()
claw_config, claw_tasks = _plugin.claw_config, _plugin.claw_tasks
claw_env, claw_judges = _plugin.claw_env, _plugin.claw_judges
"""


def test_runners_join_a_run_with_its_settings_and_one_that_dies_costs_its_own(play, tmp_path):  # noqa: F811
    folder = tmp_path / "site"
    info = folder / "claw_env_joined-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / "claw_env_joined.py").write_text(PLUGIN)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: claw-env-joined\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[claw]\njoined = claw_env_joined\n")

    def join(s, *words):
        return subprocess.Popen(
            [sys.executable, "-m", "claw", "env", "host", "--plugin", "joined", "--connect",
             s.addresses["runners"], *words],
            env=os.environ | {"PYTHONPATH": str(folder)}, stderr=subprocess.PIPE, text=True,
        )

    async def run(s):
        wrong = subprocess.run(
            [sys.executable, "-m", "claw", "env", "host", "--plugin", "personal", "--connect",
             s.addresses["runners"]], capture_output=True, text=True, check=False)
        assert wrong.returncode == 2 and "the run plays another plugin" in wrong.stderr
        first, second = join(s), join(s, "rollout.parallel=1")
        try:
            async with asyncio.timeout(25):
                while len(await _peers(s)) < 2:
                    await asyncio.sleep(0.1)
            groups = await _groups(s.run_dir, 4)
            assert set(groups.values()) == {3}, "rollout.n of the run, not the default"
            os.kill(second.pid, signal.SIGKILL)
            before = await _ended(s)
            async with asyncio.timeout(60):
                while await _ended(s) < before + 20:
                    await asyncio.sleep(0.1)
            assert first.poll() is None
            s.process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(first.wait, 20) == 0  # the run's end is its end
        finally:
            for process in (first, second):
                process.kill()
                process.wait()

    play(run, plugin_name="joined", rollout__n=3, judge__kind="none", wire__dead_after_s=2.0,
         rollout__max_tokens=8, train__batch_size=1000)


async def _peers(s):
    rows = Journal(s.run_dir, read_only=True)
    try:
        return {row[0] for row in rows.read("SELECT id FROM traces")}
    finally:
        rows.close()


async def _ended(s):
    status = await s.runner.question("status")
    return status["episodes"]["ended"].get("done", 0)


async def _groups(run_dir, least):
    """Wait for `least` groups that have ended whole; return their sizes."""
    async with asyncio.timeout(60):
        while True:
            journal = Journal(run_dir, read_only=True)
            rows = journal.read("SELECT body FROM traces WHERE ended='done'")
            journal.close()
            sizes = {}
            for (body,) in rows:
                name = json.loads(body)["group"]
                sizes[name] = sizes.get(name, 0) + 1
            whole = {name: size for name, size in sizes.items() if size >= 3}
            if len(whole) >= least:
                return whole
            await asyncio.sleep(0.1)
