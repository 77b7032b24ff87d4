"""What a person asks of a running actor: looking, pausing, leaving out, forgetting, exporting."""

import asyncio
import time
from dataclasses import replace

import numpy as np
import pytest
from actor_doubles import version
from some_turns import sample, turn
from test_actor_process import play, settled, state, user, wrong  # noqa: F401

from claw.engine import wire
from claw.engine.actor import forgetting
from claw.engine.actor.consent import Consent
from claw.engine.actor.journal import Journal
from claw.engine.people import People
from claw.engine.wire import Message
from claw.records import Loss, Signal, TurnState, Update, VersionStatus
from claw.sdk import Person


async def taught(s, number=1, path="", question="What is the capital of France?", **seen):
    """A turn that a version has learned from; returns its turn.done."""
    first = await wrong(s, question)
    assert await settled(s, first["turn_id"]) == "queued"
    lease, [sample], _ = await s.trainer.lease()
    await ack(s, lease, number, {f"{sample.id}/{k}": v for k, v in seen.items()}, path)
    return first


async def look(s, what, **about):
    """A page's numbers; its fields may be called `id`, as the message's own name is."""
    look.asked = getattr(look, "asked", 0) + 1
    await s.runner.send_message(Message("look", f"look-{look.asked}", {"what": what, **about}))
    return (await s.runner.until("reply", id=f"look-{look.asked}")).fields


async def ack(s, lease, number, arrays, path=""):
    fields, _ = wire.pack(Update(number, number, lease, Loss(0.5, 0.5, 0, 0), 1.0, 1e-5, 0.1))
    id = f"ack-with-{number}"
    await s.trainer.send("lease.ack", id, arrays, record=fields, lease_id=lease,
                         version=wire.pack(version(number, path))[0])
    await s.trainer.until("lease.acked", id=id)


# --- looking -------------------------------------------------------------------------------------


def test_a_turn_is_told_token_by_token_with_what_the_teacher_saw(play):  # noqa: F811
    async def run(s):
        n = 14  # "Paris is big." and its end
        gap = np.linspace(-1, 1, n).astype(np.float32)
        first = await taught(s, overlap=np.array([2.5], np.float32),
                             chosen=np.array([1.0], np.float32), gap=gap)
        told = await look(s, "turn", id="chatcmpl-" + first["turn_id"])
        assert "".join(t["text"] for t in told["tokens"]) == "Paris is big.■"
        assert [t["vote"] for t in told["tokens"]] == [-1.0] * n
        assert [t["gap"] for t in told["tokens"]] == pytest.approx(gap.tolist())
        # w_rl * vote + w_opd * gap
        assert [t["advantage"] for t in told["tokens"]] == pytest.approx(
            [0.5 * -1 + 2.0 * float(g) for g in gap], abs=1e-6)
        [one] = told["samples"]
        assert (one["version"], one["state"]) == (1, "trained")
        assert one["hints"] == [{"text": "Answer in one word next time.", "by": "rules",
                                 "overlap": 2.5, "chosen": 1.0}]
        assert told["next_state"][0]["text"].startswith("No, that is wrong.")
        assert told["answered_by"] == 0 and told["status"] == "trained:v1"
    play(run, loss__w_rl=0.5, loss__w_opd=2.0)


def test_lists_hold_what_changed_and_only_the_owners_own(play):  # noqa: F811
    async def run(s):
        first = await taught(s)
        await s.runner.say([user("Somebody else's")], owner="other")
        rows = (await look(s, "turns"))["turns"]
        assert first["turn_id"] in [r["id"] for r in rows] and len(rows) == 2
        since = max(r["updated"] for r in rows)
        assert (await look(s, "turns", since=since))["turns"] == []
        assert (await look(s, "turns", owner="other"))["turns"][0][
            "request"] == "Somebody else's"
        [talk] = (await look(s, "conversations"))["conversations"]
        assert talk["turns"] == 2 and talk["states"]["trained"] == 1
        learned = await look(s, "learning")
        assert learned["lessons"] == [{
            "text": "Answer in one word next time.", "times": 1, "first": 1, "last": 1,
            "turn": first["turn_id"]}]
        assert learned["versions"] == [{"version": 0, "turns": 2, "tokens": 28, "hints": 1,
                                        "down": 1}]
        made = await look(s, "version", id=1)
        assert [r["id"] for r in made["made_by"]] == [first["turn_id"]]
        for what, about in (("turn", {"id": "none"}), ("version", {"id": 9}), ("secrets", {})):
            refused = await look(s, what, **about)
            assert refused["status"] == 404
        other = await look(s, "turn", id=first["turn_id"], owner="other")
        assert other["status"] == 404
    play(run)


# --- pausing and leaving out ---------------------------------------------------------------------


def test_what_is_said_in_a_pause_is_answered_and_never_learned(play):  # noqa: F811
    async def run(s):
        before = await wrong(s)
        assert await settled(s, before["turn_id"]) == "queued"
        until = (await s.runner.question("pause", seconds=3600))["until"]
        assert until == pytest.approx(time.time() + 3600, abs=60)
        during = await wrong(s, "And of Italy?")
        assert await settled(s, during["turn_id"]) == "skipped:paused"
        assert (await s.trainer.lease(poll_s=0.3))[1] == []  # no step starts
        assert (await s.runner.question("status"))["paused_until"] == until
        await s.runner.question("pause", seconds=0)
        _, samples, _ = await s.trainer.lease()
        assert [x.turn_id for x in samples] == [before["turn_id"]]
        assert state(s.run_dir, during["turn_id"]) == "skipped:paused"
    play(run)


def test_a_pause_holds_across_a_restart(play):  # noqa: F811
    async def pause(s):
        await s.runner.question("pause", seconds=3600)

    async def after(s):
        assert (await s.runner.question("status"))["paused_until"] > time.time()
        first = await wrong(s)
        assert await settled(s, first["turn_id"]) == "skipped:paused"
    play(pause)
    play(after, resume=True)


def test_a_conversation_that_is_left_out_is_taken_back_and_stays_out(play):  # noqa: F811
    async def run(s):
        first = await wrong(s)
        assert await settled(s, first["turn_id"]) == "queued"
        done = await s.runner.question("exclude", trace_id=first["trace_id"])
        assert done["taken_back"] >= 1
        assert state(s.run_dir, first["turn_id"]) == "skipped:never_learn"
        assert (await s.trainer.lease(poll_s=0.3))[1] == []
        said = await s.runner.question("feedback", target=first["turn_id"], value=1, text="")
        assert said["status"] == "skipped:never_learn"  # nor by a thumb
        found = await look(s, "conversation", id=first["trace_id"])
        assert found["is_excluded"]
        assert (await s.runner.question("exclude", trace_id="trace_none"))["status"] == 404
    play(run)


def test_only_the_paused_owner_and_time_are_refused(tmp_path):
    journal, now = Journal(tmp_path), [100.0]
    consent = Consent(journal, clock=lambda: now[0])
    consent.pause("a", 50)
    now[0] = 120.0
    assert consent.refusal(turn(owner="a", created=90.0)) == "paused"  # its reaction comes now
    assert consent.refusal(turn(owner="b", created=110.0)) == ""
    assert consent.pause("a", 0) == 0.0 and consent.paused_until("a") == 0.0
    now[0] = 130.0
    assert consent.refusal(turn(owner="a", created=110.0)) == "paused"
    assert consent.refusal(turn(owner="a", created=125.0)) == ""
    assert consent.refusal(turn(owner="a", created=99.0)) == ""
    again = Consent(journal, clock=lambda: now[0])
    assert again.refusal(turn(owner="a", created=110.0)) == "paused"


# --- a person's own words ------------------------------------------------------------------------


def test_an_edited_reply_teaches_as_a_demonstration_and_outranks_the_judge(play, chat):  # noqa: F811
    async def run(s):
        first = await wrong(s)
        assert await settled(s, first["turn_id"]) == "queued"
        await s.runner.question("feedback", target=first["turn_id"], value=1,
                                text="Warmer, please.", edit="Paris, my dear.")
        _, [taken], _ = await s.trainer.lease()
        assert taken.advantages[0] == 1.0
        hints = [chat.decode(h) for h in taken.hints]
        assert any("Answer in this way:\nParis, my dear." in h for h in hints)
        assert any("Warmer, please." in h for h in hints)
        assert not any("one word" in h for h in hints)  # of the judge that was contradicted
        assert chat.decode(taken.reply_ids) == "Paris is big.<|im_end|>"  # what was sampled
    play(run)


def test_requests_are_counted_by_who_made_them_and_the_cause_is_told(play):  # noqa: F811
    async def run(s):
        assert (await look(s, "requests"))["trouble"] == ""
        for kind in ("heartbeat", "side"):
            done = await s.runner.say([user(f"a {kind}")], kind=kind, session="s",
                                      named_by="affinity")
            assert done.type == "turn.done", done.fields
        await s.runner.say([user("Somebody else's")], owner="other")
        told = await look(s, "requests")
        assert (told["total"], told["main"], told["side"]) == (2, 0, 2)
        assert told["kinds"] == {"side by name: heartbeat": 1, "side by name": 1}
        assert told["named_by"] == {"affinity": 2} and told["found_by"] == {"new": 1, "session": 1}
        assert told["skipped"] == {"side": 2}
        assert told["trouble"].startswith("2 requests, none trainable: every one was a side turn")
        assert [(t["request"], t["kind_by"]) for t in told["side_turns"]] == [
            ("a side", "side by name"), ("a heartbeat", "side by name: heartbeat")]
        await s.runner.say([user("hello, what is rain?")])
        told = await look(s, "requests", limit=1)
        assert told["main"] == 1 and told["named_by"]["content"] == 1
        assert told["trouble"] == ""  # it may still be judged
        assert [t["request"] for t in told["side_turns"]] == ["a side"]
        assert (await look(s, "requests", owner="other"))["total"] == 1
    play(run)


def test_when_nothing_followed_any_turn_that_is_the_cause(play):  # noqa: F811
    async def run(s):
        await s.runner.say([user("hello, what is rain?")], session="s")
        await s.runner.question("session.end", session="s")
        told = await look(s, "requests")
        assert told["trouble"] == "1 requests, none trainable: 1 that nothing followed."
        first = await wrong(s)
        assert await settled(s, first["turn_id"]) == "queued"
        await s.runner.question("session.end", session=first["trace_id"])
        told = await look(s, "requests")
        assert told["skipped"] == {"no_next_state": 2} and told["trouble"] == ""
    play(run)


def test_only_an_administrator_sets_budgets_and_everybody_sees_their_own(play):  # noqa: F811
    async def run(s):
        People(s.run_dir).add(Person("anna", False, tokens_per_day=500))
        People(s.run_dir).add(Person("boss", True))
        await s.runner.say([user("hello")], owner="anna")
        own = await look(s, "budget", owner="anna")
        assert own["tokens_per_day"] == 500 and own["left"] == 500 - own["used"] < 500
        for name in ("anna", "boss"):
            refused = await s.runner.question("budget", owner="anna", name=name,
                                              tokens_per_day=10**9)
            assert refused["status"] == 403 and "administrator" in refused["error"]
        set = await s.runner.question("budget", owner="boss", name="anna", tokens_per_day=1)
        assert (set["tokens_per_day"], set["requests_per_minute"]) == (1, 0)
        late = await s.runner.say([user("more")], owner="anna")
        assert late.type == "turn.error" and late["status"] == 429
        await s.runner.question("budget", name="anna", tokens_per_day=0, is_paused=True)
        late = await s.runner.say([user("more")], owner="anna")
        assert late["status"] == 403 and "paused" in late["message"]
        await s.runner.question("budget", name="anna", is_paused=False)
        assert (await s.runner.say([user("more")], owner="anna")).type == "turn.done"
        nobody = await s.runner.question("budget", name="nobody", tokens_per_day=1)
        assert nobody["status"] == 400 and "nobody is called so" in nobody["error"]
    play(run)


# --- forgetting ----------------------------------------------------------------------------------


def test_forgetting_names_the_versions_that_learned_from_it(play):  # noqa: F811
    async def run(s):
        first = await taught(s, 1)
        second = await taught(s, 2, question="And of Italy?")
        about = await s.runner.question("forget", session=first["turn_id"], only_look=True)
        assert about == {"turns": 2, "forgotten": 0, "learned": [1], "carried": [1, 2],
                        "back_to": 0, "in_step": 0}
        about = await s.runner.question("forget", session=second["trace_id"], only_look=True)
        assert (about["learned"], about["carried"], about["back_to"]) == ([2], [2], 1)
        done = await s.runner.question("forget", session=first["trace_id"])
        assert done["forgotten"] == 2 and done["learned"] == [1]
        told = await look(s, "turn", id=first["turn_id"])
        assert told["state"] == "forgotten" and "tokens" not in told
        assert (await look(s, "learning"))["lessons"][0]["turn"] == (
            second["turn_id"])
        # the conversation goes on as a new one: its first messages are known no more
        again = await s.runner.say([user("What is the capital of France?"), first["message"],
                                    user("Thanks.")])
        assert again["trace_id"] != first["trace_id"]
        assert (await s.runner.question("forget", session="nobody"))["status"] == 404
    play(run)


def test_forgetting_in_mid_reply_ends_the_reply_and_leaves_no_word(play):  # noqa: F811
    async def run(s):
        s.worker.hold.clear()
        id = await s.runner.ask([user("the word is swordfish")], session="s1")
        start = await s.runner.until("turn.start", id=id)
        assert (await s.runner.question("forget", session="s1"))["forgotten"] == 1
        await s.runner.until("turn.error", id=id)
        s.worker.hold.set()
        await s.worker.until("cancel")
        status = await s.runner.question("status")
        assert status["turns"] == {"forgotten": 1}
        return start["turn_id"]
    play(run)
    assert not any(b"swordfish" in f.read_bytes() for f in play.dir.glob("journal*"))


def test_what_a_judge_says_too_late_does_not_come_back(play, tmp_path):  # noqa: F811
    """The turn is forgotten while its judge still thinks: nothing of its words is written."""
    async def run(s):
        s.worker.reply = lambda prompt: "Paris is big."
        first = await s.runner.say([user("the word is swordfish")], session="s1")
        s.worker.hold.clear()  # the judge waits for the worker
        await s.runner.ask([user("the word is swordfish"), first["message"], user(WRONG_FISH)],
                           session="s1")
        async with asyncio.timeout(10):
            while state(s.run_dir, first["turn_id"]) != "judging":
                await asyncio.sleep(0.02)
        await s.runner.question("forget", session="s1")
        s.worker.hold.set()
        async with asyncio.timeout(10):
            while not (await s.runner.question("status"))["judged"]:
                await asyncio.sleep(0.02)
        journal = Journal(s.run_dir, read_only=True)
        assert journal.read("SELECT COUNT(*) FROM signals") == [(0,)]
        journal.close()
    play(run, judge__kind="model", judge__votes=1, judge__max_hints=0, judge__retries=0,
         worker__context=2048)
    assert not any(b"swordfish" in f.read_bytes() for f in play.dir.glob("journal*"))


WRONG_FISH = "No, swordfish is wrong."


def test_a_rolled_back_or_refused_version_carries_nothing_on(tmp_path):
    journal = Journal(tmp_path)
    one = turn("turn_1", state=TurnState.TRAINED)
    journal.put_turn(one)
    journal.put_sample(sample("s1", turn_id=one.id))
    journal.put_sample_state(["s1"], "trained", lease_id="l1")
    journal.put_lease("l1", "acked", 2)
    statuses = (VersionStatus.PUBLISHED, VersionStatus.PUBLISHED, VersionStatus.ROLLED_BACK,
                VersionStatus.REFUSED)
    for number, status in enumerate(statuses):
        journal.put_version(version(number, status=status))
    journal.put_version(version(4, status=VersionStatus.PUBLISHED))  # made from the refused one
    journal.put_version(replace(version(5), parent=1))  # a rollback to 1
    found = forgetting.influence(journal, ["trace_1"], "default")
    assert (found.learned, found.carried, found.back_to) == ((2,), (4,), 1)
    journal.put_signal(Signal(one.id, "rules", 1))
    assert forgetting.influence(journal, ["trace_2"], "default").learned == ()


# --- exporting -----------------------------------------------------------------------------------


def test_a_version_is_exported_without_claws_own_files(play, tmp_path):  # noqa: F811
    weights = tmp_path / "v1"
    weights.mkdir()
    for name in ("adapter_model.safetensors", "adapter_config.json", "manifest.json",
                 "canary.safetensors"):
        (weights / name).write_text(name)

    async def run(s):
        await taught(s, 1, path=str(weights))
        done = await s.runner.question("export", number=1)
        assert done["folder"] == str(s.run_dir / "exports" / "v1")
        assert await s.runner.question("export", number=1) == done  # twice is fine
        assert (await s.runner.question("export", number=7))["status"] == 404
    play(run)
    written = {f.name for f in (play.dir / "exports" / "v1").iterdir()}
    assert written == {"adapter_model.safetensors", "adapter_config.json"}
