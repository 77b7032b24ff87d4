"""Traces in a file come back as they were; what a crash cut short is left out."""

import pytest

from claw.errors import ClawError
from claw.records import End, Signal
from claw.sdk import traces
from claw.sdk.clip import clip, clip_message
from claw.sdk.traces import AttemptTrace

CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1'}}
WHOLE = AttemptTrace(
    "task/ü", 3,
    ({"role": "user", "content": "caf\u00e9 \ud83c \x00 \x1b[31m \u2028 line\nbreak"},
     {"role": "assistant", "content": None, "tool_calls": [CALL]},
     {"role": "tool", "content": [{"type": "text", "text": "x"}], "tool_call_id": "c1"}),
    End.TURN_LIMIT, 0.5, "checker:tests", "", ({"type": "function"},),
    ({"id": "turn_1", "finish_reason": "tool_calls", "usage": {"completion_tokens": 3},
      "version": 2},),
    (Signal("turn_1", "checker:tests", -1, (-1, None), 0.25, ("Use two numbers.",), "failed"),),
    17, 1.5,
)


def test_a_trace_comes_back_as_it_was(tmp_path):
    file = tmp_path / "attempts.jsonl"
    bare = AttemptTrace("t", 0, (), End.FAILED, failure="sandbox: OSError: gone")
    for trace in (WHOLE, bare):
        traces.append(file, trace)
    assert traces.read(file) == [WHOLE, bare]
    assert len(file.read_bytes().splitlines()) == 2  # one line each, whatever the text holds


def test_a_line_that_a_crash_cut_is_left_out_and_writing_goes_on_behind_whole_ones(tmp_path):
    file = tmp_path / "attempts.jsonl"
    traces.append(file, WHOLE)
    with file.open("a") as out:
        out.write(traces.to_line(WHOLE)[:40])
    assert traces.read(file) == [WHOLE]
    traces.mend(file)
    traces.append(file, WHOLE)
    assert traces.read(file) == [WHOLE, WHOLE]
    assert traces.read(tmp_path / "none") == []


@pytest.mark.parametrize("line", [
    "", "[]", "{}", '{"format": 2}', traces.to_line(WHOLE).replace("turn_limit", "enough"),
    traces.to_line(WHOLE).replace('"judge"', '"judges"'),
])
def test_what_is_no_trace_is_told_with_its_line(tmp_path, line):
    file = tmp_path / "attempts.jsonl"
    file.write_text(f"{traces.to_line(WHOLE)}\n{line}\n")
    with pytest.raises(ClawError, match="line 2 of"):
        traces.read(file)


def test_what_json_cannot_hold_costs_no_trace():
    odd = AttemptTrace("t", 0, ({"role": "user", "content": "x", "n": float("nan"), "o": {1}},),
                       End.DONE, 1.0)
    [message] = traces.from_line(traces.to_line(odd)).messages
    assert message == {"role": "user", "content": "x", "n": None, "o": "{1}"}


@pytest.mark.parametrize(("end", "outcome", "is_scored"), [
    (End.DONE, 0.0, True), (End.CONTEXT, 1.0, True), (End.DONE, None, False),
    (End.FAILED, None, False), (End.CANCELLED, 1.0, False),
])
def test_an_attempt_counts_when_a_judge_gave_a_number_and_nothing_failed(end, outcome, is_scored):
    assert AttemptTrace("t", 0, (), end, outcome).is_scored is is_scored


def test_a_clipped_text_keeps_head_and_tail():
    assert clip("abcdefghij", 5) == "abc\n[... 5 characters left out ...]\nij"
    assert clip("abcde", 5) == clip("abcde", 0) == "abcde"
    assert clip("ab", 1) == "a\n[... 1 characters left out ...]\n"
    message = {"role": "tool", "content": [{"type": "text", "text": "abcdef"}, {"type": "image"}]}
    assert clip_message(message, 2)["content"] == [
        {"type": "text", "text": "a\n[... 4 characters left out ...]\nf"}, {"type": "image"}]
    assert clip_message({"role": "assistant", "content": None}, 2)["content"] is None
