"""What a person may use: requests a minute, tokens a day."""

import numpy as np
import pytest

from claw.engine.actor.journal import Journal
from claw.engine.actor.meter import DAY_S, Meter
from claw.engine.people import People
from claw.records import (
    Completion,
    FinishReason,
    Sampling,
    Trace,
    Turn,
    TurnKind,
    TurnState,
    new_id,
)
from claw.sdk import EngineError, Person


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def metered(tmp_path):
    people, clock = People(tmp_path), Clock()
    people.add(Person("anna", False, requests_per_minute=2))
    people.add(Person("bo", False, tokens_per_day=100))
    people.add(Person("eve", False))
    journal = Journal(tmp_path)
    yield Meter(people, journal, clock), clock, journal
    journal.close()


def refused(meter, owner):
    with pytest.raises(EngineError) as caught:
        meter.begin(owner, 10)
    return caught.value


def test_requests_a_minute_come_back_one_by_one(metered):
    meter, clock, _ = metered
    meter.begin("anna", 10)
    clock.now += 20
    meter.begin("anna", 10)
    error = refused(meter, "anna")
    assert (error.status, error.code, error.retry_after_s) == (429, "rate_limit_exceeded", 40.0)
    assert "2 requests a minute" in error.message and "40 s" in error.message
    clock.now += 40.5
    meter.begin("anna", 10)
    assert refused(meter, "anna").retry_after_s == pytest.approx(19.5)


def test_a_request_counts_with_its_longest_reply_until_it_ends(metered):
    meter, clock, _ = metered
    first = meter.begin("bo", 100)
    assert refused(meter, "bo").type == "tokens"
    first.tokens = 30
    second = meter.begin("bo", 100)
    second.tokens = 80
    clock.now += 100
    error = refused(meter, "bo")
    # 110 are used and 100 allowed: when the first request's 30 fall out, 80 are left
    assert error.retry_after_s == pytest.approx(DAY_S - 100) and "110 are used" in error.message
    clock.now += DAY_S - 99
    assert meter.used("bo") == 0 and meter.begin("bo", 5) is not None


def test_the_wait_is_until_enough_of_the_day_has_gone(metered):
    meter, clock, _ = metered
    for tokens in (5, 40, 90):
        meter.begin("bo", tokens)
        clock.now += 10
    # 135 are used: without the first 5 it is 130, without the next 40 it is 90
    assert refused(meter, "bo").retry_after_s == pytest.approx(DAY_S - 20)


def test_a_paused_budget_answers_nothing_and_does_not_ask_to_come_again(metered, tmp_path):
    meter, _, _ = metered
    People(tmp_path).budget("anna", is_paused=True)
    error = refused(meter, "anna")
    assert (error.status, error.code, error.retry_after_s) == (403, "budget_paused", None)
    assert meter.used("anna") == 0 and meter.begin("bo", 10) is not None
    People(tmp_path).budget("anna", is_paused=False)
    assert meter.begin("anna", 10) is not None


def test_who_has_no_limit_is_counted_all_the_same(metered):
    meter, _, _ = metered
    assert meter.used("eve") == 0
    for _ in range(3):
        meter.begin("eve", 1000)
    assert meter.used("eve") == 3000


def test_one_over_its_limit_leaves_the_others_alone_and_the_runs_own_key_has_none(metered):
    meter, _, _ = metered
    for _ in range(2):
        meter.begin("anna", 10)
    refused(meter, "anna")
    assert meter.begin("bo", 10) is not None
    for owner in ("default", "a stranger"):
        assert meter.begin(owner, 10) is None


def a_turn(journal, owner, prompt, reply, created):
    """A turn of so many tokens in the journal."""
    trace = Trace(new_id("trace"), owner, "personal", created=created)
    journal.put_trace(trace)
    completion = Completion(
        np.zeros(reply, np.int32), np.zeros(reply, np.float32), np.zeros((reply, 0), np.int32),
        np.zeros((reply, 0), np.float32), np.zeros(reply, np.int32), FinishReason.STOP)
    journal.put_turn(Turn(
        id=new_id("turn"), trace_id=trace.id, index=0, owner=owner, adapter="default",
        kind=TurnKind.MAIN, messages=(), tools=(), sampling=Sampling(),
        prompt_ids=np.zeros(prompt, np.int32), state=TurnState.WAITING, completion=completion,
        created=created))


def test_after_a_restart_the_day_is_read_from_the_journal(metered):
    meter, clock, journal = metered
    a_turn(journal, "bo", 60, 50, clock.now - 50)
    a_turn(journal, "bo", 500, 500, clock.now - DAY_S - 5)
    a_turn(journal, "anna", 7, 1, clock.now - 5)
    assert meter.used("bo") == 110 and meter.used("anna") == 8
    assert "110 are used" in refused(meter, "bo").message


