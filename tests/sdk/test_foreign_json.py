"""JSON of others: whatever is wrong with it is a ValueError, wherever it is read."""

import json

import pytest

from claw.engine.actor import parse, speech
from claw.records import FinishReason
from claw.sdk.foreign_json import MAX_DEPTH, from_json
from claw.sdk.judges.results import error_in


@pytest.mark.parametrize(
    "text", ["[" * 5000, "{\"a\":" * 5000, "[" * 101 + "]" * 101, "", "1" * 5000])
def test_what_cannot_be_read_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        from_json(text)


def test_a_hundred_levels_are_read() -> None:
    value = from_json("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    for _ in range(MAX_DEPTH - 1):
        [value] = value
    assert value == [] and from_json(b'{"a": [1, {"b": null}]}') == {"a": [1, {"b": None}]}


@pytest.mark.parametrize("text", ["NaN", "[1, -Infinity]", '{"a": 1e999}'])
def test_what_is_no_number_of_json_is_refused_where_it_must_be_finite(text: str) -> None:
    from_json(text)
    with pytest.raises(ValueError, match=r"JSON value|too large"):
        from_json(text, finite=True)


DEEP = '{"a": ' + "[" * 900 + "]" * 900 + "}"


@pytest.mark.parametrize("arguments", ["[" * 3000, DEEP])
def test_a_history_with_unreadable_arguments_still_names_its_conversation(arguments: str) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "ls", "arguments": arguments}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    assert len(speech.key(message)) == 16 and "ls" in speech.shown(message)


@pytest.mark.parametrize("arguments", ['{"p": NaN}', '{"p": 1e999}', DEEP, json.dumps("[" * 3000)])
def test_a_call_that_no_client_could_read_stays_text(arguments: str) -> None:
    text = f'<tool_call>{{"name": "ls", "arguments": {arguments}}}</tool_call>'
    message, finish = parse.reply(text, parse.Markup("hermes"), FinishReason.STOP)
    assert "tool_calls" not in message and message["content"] == text
    assert finish is FinishReason.STOP


def test_a_result_of_a_thousand_levels_is_read_as_text() -> None:
    assert error_in({"role": "tool", "content": DEEP}) == ""
    assert len(error_in({"role": "tool", "content": DEEP.replace('"a"', '"error"')})) <= 80
