"""Reward files: what counts, and everything that does not."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claw.sdk.formats import reward
from claw.sdk.formats.reward import RewardError


@pytest.mark.parametrize(("files", "found"), [
    ({"reward.txt": b"1\n"}, {"reward": 1.0}),
    ({"reward.txt": b" 0.25 "}, {"reward": 0.25}),
    ({"reward.json": b'{"reward": 0.5}'}, {"reward": 0.5}),
    ({"reward.json": b"0.5"}, {"reward": 0.5}),
    ({"reward.json": b'{"a": 1, "b": 0}', "reward.txt": b"1"}, {"a": 1.0, "b": 0.0}),
    ({"rewards.json": b'{"reward": 1}'}, {"reward": 1.0}),
    ({"reward.json": b"\xef\xbb\xbf1"}, {"reward": 1.0}),
])
def test_a_reward_is_read(files: dict[str, bytes], found: dict[str, float]) -> None:
    assert reward.read(files) == found


@pytest.mark.parametrize("files", [
    {}, {"reward.txt": b""}, {"reward.txt": b"nan"}, {"reward.txt": b"inf"},
    {"reward.txt": b"1e309"}, {"reward.txt": b"yes"}, {"reward.txt": b"1\n1"},
    {"reward.txt": b"\xff\xfe"}, {"reward.json": b""}, {"reward.json": b"{}"},
    {"reward.json": b"NaN"}, {"reward.json": b"Infinity"}, {"reward.json": b"1e309"},
    {"reward.json": b'"1"'}, {"reward.json": b"[1]"}, {"reward.json": b"true"},
    {"reward.json": b'{"reward": null}'}, {"reward.json": b'{"reward": {"a": 1}}'},
    {"reward.json": b"{"}, {"reward.json": b"[" * 100_000}, {"reward.json": b"1" * 5000},
    {"reward.txt": b"1" * (2 << 20)}, {"reward.json": b"bad", "reward.txt": b"1"},
])
def test_what_is_no_reward_is_an_error(files: dict[str, bytes]) -> None:
    with pytest.raises(RewardError):
        reward.read(files)


@given(st.binary(max_size=200), st.sampled_from(["reward.txt", "reward.json", "rewards.json"]))
def test_any_bytes_are_a_finite_reward_or_an_error(data: bytes, name: str) -> None:
    try:
        found = reward.read({name: data})
    except RewardError:
        return
    assert all(abs(v) < float("inf") for v in found.values()) and found


def test_one_reward_is_the_named_one_else_the_mean() -> None:
    assert reward.one({"reward": 0.2, "speed": 1.0}) == 0.2
    assert reward.one({"a": 1.0, "b": 0.5}) == 0.75


def test_a_report_counts_its_tests() -> None:
    tests = [{"name": "a", "status": "passed"}, {"name": "b", "status": "failed"},
             {"name": "c", "status": "skipped"}, {"name": "d", "status": "other"}]
    data = json.dumps({"results": {"tests": tests}}).encode()
    assert reward.from_ctrf(data) == reward.Counts(1, 3, ("b", "d"))


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["results", "tests", "name", "status"]), inner, max_size=3),
))
def test_a_strange_report_is_none_never_a_crash(value: object) -> None:
    found = reward.from_ctrf(json.dumps(value).encode())
    assert found is None or 0 <= found.passed <= found.total
