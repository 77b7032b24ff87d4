"""Old and new version answer the same questions; what gets worse goes back."""

import asyncio
import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
from actor_doubles import version
from test_actor_process import play, settled, wrong  # noqa: F401 (play is a fixture)
from test_desk import look

from claw.config import BetterConfig
from claw.engine import wire
from claw.engine.actor import compare
from claw.engine.actor.better import Better
from claw.engine.actor.compare import Answer, Question
from claw.engine.actor.journal import Journal

ASKED = Question("turn_1", ({"role": "user", "content": "What is rain?"},), (),
                 ("Too long. Shorter, please, no list.",))


def answer(text: str) -> Answer:
    return Answer(text, tuple(text.encode()))


@pytest.mark.parametrize(("old", "new", "sign", "why"), [
    ("Rain is water. It falls from clouds.", "Rain falls.", 1, "shorter was asked for"),
    ("Rain falls.", "Rain is water. It falls from clouds.", -1, "longer, and"),
    ("Rain falls down.", "Rain falls now!", 0, "nothing measurable"),
    ("Rain falls.", "Rain falls.", 0, "same words"),
    ("- it rains\n- it pours", "It rains and it pours", 1, "no list"),
    ("Rain falls.", "", -1, "new answer is empty"),
    ("I'm sorry, I can't help.", "Rain falls.", 1, "old answer refuses"),
    ("Rain falls.", "a b c d " * 40, -1, "repeats itself"),
    ("", "", 0, "same words"),
])
def test_an_answer_is_better_by_what_the_person_asked_for(old, new, sign, why):
    found = asyncio.run(compare.verdict(ASKED, answer(old), answer(new), None))
    assert found[0] == sign and why in found[1]


def test_the_fixed_questions_are_not_those_of_the_gate():
    from claw.engine.trainer import heldout

    known = {question for question, _ in heldout.TEXTS}
    assert not known & {q.messages[0]["content"] for q in compare.FIXED}
    assert len({q.id for q in compare.FIXED}) == len(compare.FIXED) >= 16


def rows(run_dir):
    journal = Journal(run_dir, read_only=True)
    try:
        return [(subject, json.loads(text)) for subject, text in journal.read(
            "SELECT subject, text FROM events WHERE kind='better' ORDER BY n")]
    finally:
        journal.close()


async def publish(s, number):
    await s.trainer.send_message(wire.record_message("version.published", version(number)))
    s.worker.version = number


def has_answered(s, number):
    """Whether a version has answered its whole panel."""
    journal = Journal(s.run_dir, read_only=True)
    try:
        return bool(journal.read("SELECT 1 FROM events WHERE kind='better.done' AND subject=?",
                                 f"v{number}"))
    finally:
        journal.close()


async def until(check, seconds=20):
    async with asyncio.timeout(seconds):
        while not check():
            await asyncio.sleep(0.05)


def greedy(s):
    """How many questions of the panel the worker was asked."""
    return sum(m["sampling"]["temperature"] == 0 for m in s.worker.of("generate"))


def test_each_version_answers_what_the_one_before_answered(play):  # noqa: F811
    async def run(s):
        await until(lambda: has_answered(s, 0))
        assert greedy(s) == 2  # two fixed questions
        first = await wrong(s)
        assert await settled(s, first["turn_id"]) == "queued"
        s.worker.reply = lambda prompt: "Big."
        await publish(s, 1)
        await until(lambda: has_answered(s, 1))
        assert greedy(s) == 5  # both again, and this turn for the next time
        assert [subject for subject, _ in rows(s.run_dir)] == ["fixed:0", "fixed:1"]
        s.worker.reply = lambda prompt: "Paris, a very big town."
        await publish(s, 2)
        await until(lambda: has_answered(s, 2))
        told = rows(s.run_dir)[2:]
        assert {subject for subject, _ in told} == {"fixed:0", "fixed:1", first["turn_id"]}
        assert all((one["version"], one["before"]) == (2, 1) for _, one in told)
        assert {one["old"] for _, one in told} == {"Big."}
        assert {one["new"] for _, one in told} == {"Paris, a very big town."}
        assert (await s.runner.question("status"))["turns"] == {"queued": 1, "waiting": 1}
        assert len((await look(s, "version", id=2))["answers"]) == 3
        await s.runner.question("forget", session=first["trace_id"])
        assert first["turn_id"] not in {subject for subject, _ in rows(s.run_dir)}
    play(run, better__questions=4, worker__slots=8)


def test_a_version_that_answers_worse_goes_back_by_itself(play):  # noqa: F811
    async def run(s):
        await until(lambda: has_answered(s, 0))
        s.worker.reply = lambda prompt: "I'm sorry, I can't help."
        await publish(s, 1)
        asked = await s.trainer.until("rollback", seconds=20)
        assert asked["to"] == 0
        journal = Journal(s.run_dir, read_only=True)
        [(why,)] = journal.read("SELECT text FROM events WHERE kind='better.back'")
        journal.close()
        assert why.startswith("4 of 4 answers are worse than those of v0")
    play(run, better__questions=8, worker__slots=8)


def test_off_means_that_nobody_is_asked_anything(play):  # noqa: F811
    async def run(s):
        await publish(s, 1)
        for _ in range(3):  # each second it could begin
            await s.runner.say([{"role": "user", "content": "hello"}])
            await asyncio.sleep(1)
        assert greedy(s) == 0
    play(run)


@pytest.mark.parametrize(("devices", "asked"), [
    ([], 0), (["cpu"], 0), (["cuda"], 8), (["cuda", "cuda:1"], 8), (["cuda", "cpu"], 0),
    (["mps"], 0), ([""], 0),
])
def test_only_workers_with_a_gpu_are_asked_unless_the_settings_say_so(devices, asked):
    policy = SimpleNamespace(workers={i: SimpleNamespace(device=d) for i, d in enumerate(devices)})
    assert Better(BetterConfig(), None, None, policy, None, None).questions == asked
    assert Better(BetterConfig(questions=3), None, None, policy, None, None).questions == 3
    assert Better(BetterConfig(questions=0), None, None, policy, None, None).questions == 0


def test_what_a_person_says_meanwhile_does_not_change_what_the_next_version_is_asked(tmp_path):
    journal = Journal(tmp_path)
    better = Better(BetterConfig(questions=2), journal, None, None, None, None)
    newest = ["turn_1", "turn_2", "turn_3"]
    better._own = lambda owner, count: [replace(ASKED, id=newest.pop(0))]

    async def answers(questions, owner, number):
        return {q.id: (q, answer("Rain falls.")) for q in questions}

    better._answers = answers
    asyncio.run(better._compare("default", 0))
    journal.close()
    assert list(better._last["default"].answers) == ["fixed:0", "turn_1"]
