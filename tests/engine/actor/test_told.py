"""Tool calls while they stream: what is told, when, and that the record says the same."""

import json

import pytest

from claw.engine.actor import families
from claw.engine.actor.told import Told

ONE = '<tool_call>\n{"name": "read", "arguments": {"path": "a.txt", "deep": [1, {"x": null}]}}\n'
ONE += "</tool_call>"
TWO = 'I look.\n<tool_call>{"name": "a", "arguments": {}}</tool_call> then\n<tool_call>{"name": ' \
      '"b", "arguments": {"s": "a } \\" { ]"}}</tool_call>\n done'


def tell(body, step=1):
    """Take a body a few characters at a time; return the parts by call, and the Told."""
    told, parts = Told(), []
    for end in range(step, len(body) + step, step):
        parts += told.take(body[:end])
    parts += told.take(body, is_whole=True)
    calls = {}
    for part in parts:
        call = calls.setdefault(part["index"], {"arguments": ""})
        assert ("id" in part) == ("id" not in call), "id and name are in the first part only"
        call |= {k: part[k] for k in ("id", "name") if k in part}
        call["arguments"] += part["arguments"]
    return list(calls.values()), told


@pytest.mark.parametrize("step", [1, 2, 7, 1000])
def test_calls_are_told_with_name_first_and_the_arguments_they_have_in_the_end(step):
    calls, told = tell(TWO, step)
    assert [(c["name"], c["arguments"]) for c in calls] == [
        ("a", "{}"), ("b", '{"s": "a } \\" { ]"}')]
    assert [c["id"] for c in told.calls] == [c["id"] for c in calls]
    assert [c["function"]["arguments"] for c in told.calls] == [c["arguments"] for c in calls]
    assert told.content(TWO) == "I look.\nthen\ndone"


def test_a_call_is_told_as_soon_as_its_arguments_begin_and_grows_with_them():
    told, at = Told(), ONE.index('"deep"')
    assert told.take(ONE[: ONE.index('{"path"')]) == []
    head, first = told.take(ONE[:at])
    assert (head["index"], head["name"], head["arguments"]) == (0, "read", "")
    assert first == {"index": 0, "arguments": '{"path": "a.txt", '}
    assert told.take(ONE[: at + 5]) == [{"index": 0, "arguments": '"deep'}]


@pytest.mark.parametrize("step", [1, 5])
def test_nothing_of_a_marker_is_ever_told_as_an_argument(step):
    cut = ONE[: ONE.index("null")] + '"<b> </tool </tool_call>'
    calls, _ = tell(cut, step)
    assert calls[0]["arguments"].endswith('{"x": "<b> </tool ')
    assert tell(ONE, step)[0][0]["arguments"].endswith("}]}")


@pytest.mark.parametrize(("body", "arguments"), [
    ('<tool_call>{"name": "a", "arguments": {"p": "/tmp/a", "content": "',
     '{"p": "/tmp/a", "content": "'),
    ('<tool_call>{"name": "a", "arguments": {"p": 1</tool_call>', '{"p": 1'),
    ('<tool_call>{"name": "a", "arguments": {"p": }}</tool_call>', '{"p": '),
    ('<tool_call>{"name": "a", "arguments": {"p": [1}}</tool_call>', '{"p": [1'),
    ('<tool_call>{"name": "a", "arguments": {"p": "\\x"}}</tool_call>', '{"p": "\\'),
    ('<tool_call>{"name": "a", "arguments": {"p": NaN}}</tool_call>', '{"p": '),
])
def test_a_call_that_breaks_off_keeps_what_was_told_and_leaves_no_markup_as_text(body, arguments):
    calls, told = tell(body)
    assert [c["arguments"] for c in calls] == [arguments]
    assert told.calls[0]["function"]["arguments"] == arguments
    assert told.content(body) == ""


@pytest.mark.parametrize("body", [
    '<tool_call>{"name": "a", "argu', '<tool_call>{"name": 3, "arguments": {}}</tool_call>',
    "<tool_call>nothing</tool_call>", "a <tool_call", '<tool_call>{"name": "\\x", "arguments": {}',
])
def test_what_was_not_begun_stays_text(body):
    calls, told = tell(body)
    assert (calls, told.calls, told.content(body)) == ([], [], body)


def test_calls_in_another_order_or_with_a_string_of_json_are_told_whole_and_in_their_place():
    body = ('<tool_call>{"arguments": {"x": 1}, "name": "a"}</tool_call>'
            '<tool_call>{"name": "b", "arguments": "{\\"y\\": 2}"}</tool_call>' + ONE)
    calls, told = tell(body)
    assert [(c["name"], json.loads(c["arguments"])) for c in calls][:2] == [
        ("a", {"x": 1}), ("b", {"y": 2})]
    assert [c["function"]["name"] for c in told.calls] == ["a", "b", "read"]


def test_lines_inside_a_string_are_told_as_strict_json():
    calls, _ = tell('<tool_call>{"name": "a", "arguments": {"s": "x\n\ty\x01"}}</tool_call>')
    assert calls[0]["arguments"] == '{"s": "x\\n\\ty\\u0001"}'


@pytest.mark.parametrize("body", [TWO, ONE, f"{ONE}\n{ONE}", "no call <b>", ONE + " and more"])
def test_sound_replies_are_read_the_same_whether_they_stream_or_not(body):
    _, told = tell(body)
    content, calls = families.FAMILIES["hermes"].read(body, ())
    assert told.content(body) == content
    assert [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in told.calls] \
        == [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in calls]
