"""ATIF trajectories, against the rules of the schema written out here."""

import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from claw.sdk.formats import atif

MESSAGES = [
    {"role": "system", "content": "Act."},
    {"role": "user", "content": [{"type": "text", "text": "Do it."}]},
    {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "run", "arguments": '{"a": 1}'}},
        {"id": "c2", "type": "function", "function": {"name": "run", "arguments": "{broken"}},
    ]},
    {"role": "tool", "tool_call_id": "c1", "content": "one"},
    {"role": "tool", "tool_call_id": "c2", "content": "two \ud83c"},
    {"role": "assistant", "content": "done"},
]


def check(made: dict[str, Any]) -> None:
    """What Harbor's own models demand."""
    assert made["schema_version"] in {f"ATIF-v1.{i}" for i in range(9)}
    assert {"name", "version"} <= made["agent"].keys()
    assert [s["step_id"] for s in made["steps"]] == [*range(1, len(made["steps"]) + 1)]
    for step in made["steps"]:
        assert isinstance(step["message"], str)
        assert step["source"] in ("system", "user", "agent")
        if step["source"] != "agent":
            assert not step.keys() & {"tool_calls", "reasoning_content", "metrics", "model_name"}
        calls = {c["tool_call_id"] for c in step.get("tool_calls", ())}
        assert all(isinstance(c["arguments"], dict) for c in step.get("tool_calls", ()))
        for result in step.get("observation", {"results": ()})["results"]:
            assert result.get("source_call_id") is None or result["source_call_id"] in calls


def test_messages_become_steps_with_their_calls_and_results() -> None:
    made = atif.trajectory(
        MESSAGES, session_id="s", agent="claw-terminal", version="1", model="m",
        usages=[{"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}], times=[0.0],
    )
    check(made)
    assert [s["source"] for s in made["steps"]] == ["system", "user", "agent", "agent"]
    acted = made["steps"][2]
    assert acted["tool_calls"][0]["arguments"] == {"a": 1}
    assert acted["tool_calls"][1]["arguments"] == {"unreadable": "{broken"}
    assert [r["content"] for r in acted["observation"]["results"]] == ["one", "two \ud83c"]
    assert acted["metrics"] == {"prompt_tokens": 5, "completion_tokens": 2}
    assert made["steps"][0]["timestamp"] == "1970-01-01T00:00:00+00:00"
    assert made["final_metrics"]["total_steps"] == 4


def test_a_file_survives_lone_surrogates(tmp_path: Path) -> None:
    made = atif.trajectory(MESSAGES, session_id="s", agent="a", version="1")
    atif.write(tmp_path / "in" / "t.json", made)
    assert json.loads((tmp_path / "in" / "t.json").read_bytes()) == made
    assert [p.name for p in (tmp_path / "in").iterdir()] == ["t.json"]


call = st.fixed_dictionaries({"id": st.sampled_from(["a", "b"]), "function": st.fixed_dictionaries(
    {"name": st.text(max_size=3), "arguments": st.text(max_size=8)})})
message = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "user", "assistant", "tool"]),
     "content": st.none() | st.text(max_size=5)},
    optional={"tool_calls": st.lists(call, max_size=2), "tool_call_id": st.sampled_from("abc")},
)


@given(st.lists(message, min_size=1, max_size=6))
def test_any_messages_make_a_valid_trajectory(messages: list[dict[str, Any]]) -> None:
    check(atif.trajectory(messages, session_id="s", agent="a", version="1"))
