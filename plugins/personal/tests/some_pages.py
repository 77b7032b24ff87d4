"""What an engine says of a run with one taught turn, for tests of the dashboard."""

import base64
from typing import Any

from claw.sdk.doubles import ScriptedEngine

PICTURE = "ab" * 32
"""a picture's name"""
PIXELS = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAGAAAAAwCAAAAADLfSATAAAAkElEQVR42u3NhRWCAAAFQMZR7O5uBUywsVAxsFts"
    "xbWdw/f+LXCESk1qtDq9wWgyW6w2u8Ppcnu8Pn8gGApHorF4IplKZyiayebyhWKJ5cqVaq3eaPKtdqfbE/qDoTga"
    "T6bSbL5Yrtab7W5/OJ7O8uV6uz+er/dH+RIIECBAgAABAgQIECBAgAABAgQI/in4Af/hJ1tXYowyAAAAAElFTkSu"
    "QmCC")
"""a grey ramp, 96 x 48; PNG"""
EVIL = "<script>window.stolen = 1</script><img src=x onerror='window.stolen = 2'>"


def row(id: str = "turn_a", **changes: Any) -> dict[str, Any]:
    return {
        "id": id, "trace_id": "trace_a", "index": 0, "kind": "main", "state": "trained",
        "reason": "v2", "status": "trained:v2", "request": "What is rain?",
        "said": "Rain is water that falls.", "answered_by": 1, "reply_tokens": 4, "vote": -1,
        "judge": "rules", "hints": 1, "created": 1.0, "updated": 2.0, "session": "",
    } | changes


def token(text: str, vote: float, gap: float) -> dict[str, Any]:
    return {"text": text, "vote": vote, "gap": gap, "advantage": vote + gap, "logp": -0.5,
            "version": 1}


def version(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "number": number, "parent": number - 1 if number else None, "status": "published",
        "kind": "lora", "note": "", "created": 1.0, "on_disk": True, "turns": 3 if number else 0,
        "metrics": {"gate/heldout_rise": 0.01 * number, "gate/drift": 0.25} if number else {},
    } | changes


def engine(words: str = "Shorter, please.", request: str = "What is rain?") -> ScriptedEngine:
    """Every page is there; `words` and `request` are what a person typed."""
    made = ScriptedEngine()
    turn, rows = row(request=request), [version(n) for n in (2, 1, 0)]
    made.state |= {"served_version": 2, "turns": {"trained": 1}, "trainer": {"state": "waiting"}}
    sub = {"trace_id": "trace_c", "turn_id": "turn_a", "turns": 2, "request": request,
           "states": {"skipped": 2}}
    lesson = {"text": words, "times": 3, "first": 1, "last": 2, "turn": "turn_a"}
    made.pages = {
        "turns": {"turns": [turn], "paused_until": 0.0},
        "learning": {
            "versions": [{"version": 0, "turns": 8, "tokens": 320, "up": 2, "down": 6},
                         {"version": 2, "turns": 8, "tokens": 120, "up": 6, "down": 2}],
            "steps": [{"train/version": 1, "gate/heldout_rise": 0.1, "train/loss": 1.0},
                      {"train/version": 2, "gate/heldout_rise": 0.02, "train/loss": 0.5}],
            "lessons": [lesson], "max_rise": 0.5,
            "compared": {"version": 2, "before": 1, "better": 3, "worse": 1, "neither": 4},
        },
        "versions": {"versions": rows, "max_rise": 0.5},
        "quarantine": {"turns": [row("turn_b", state="skipped", request=request, words=[words],
                                     reason="quarantine: bulk: the same words")]},
        "requests": {
            "total": 12, "main": 3, "side": 9, "trouble": "",
            "kinds": {"main by default": 3, "side by name: heartbeat": 9},
            "named_by": {"name": 12}, "found_by": {"session": 11, "new": 1},
            "skipped": {"side": 9}, "side_turns": [
                row("turn_s", kind="side", state="skipped", reason="side", request=request,
                    kind_by="side by name: heartbeat", parent=None),
                row("turn_c", kind="side", state="skipped", reason="side", request=request,
                    kind_by="side by text: subagent",
                    parent={"trace_id": "trace_a", "turn_id": "turn_a"})]},
        "budget": {"name": "anna", "used": 120, "left": 380, "tokens_per_day": 500,
                   "requests_per_minute": 3, "is_paused": False},
        "people": {"people": [{
            "name": "a-name-of-forty-characters-as-the-longest", "is_admin": False,
            "is_paused": False,
            "requests_per_minute": 3, "tokens_per_day": 500, "created": 0.0, "used": 120,
            "version": 2, "paused_until": 0}]},
        "conversations": {"conversations": [
            {"trace_id": "trace_a", "session": words, "ended": "", "turns": 1, "updated": 2.0,
             "request": request, "states": {"trained": 1}, "is_excluded": False}]},
        "conversation/trace_a": {"trace_id": "trace_a", "session": words, "ended": "",
                                 "turns": [turn], "is_excluded": False, "parent": None,
                                 "subagents": [sub]},
        "conversation/trace_c": {"trace_id": "trace_c", "session": words, "ended": "",
                                 "turns": [row("turn_c", kind="side", request=request)],
                                 "is_excluded": False, "subagents": [],
                                 "parent": {"trace_id": "trace_a", "turn_id": "turn_a"}},
        "turn/turn_a": turn | {
            "request_messages": [{"role": "user", "text": request,
                                  "pictures": [PICTURE], "others": ["input_audio"]}],
            "reply": "Rain falls", "tools": [], "finish_reason": "stop", "prompt_tokens": 9,
            "next_state": [{"role": "user", "text": words, "pictures": [], "others": []}],
            "tokens": [token("Rain", -1.0, 0.5), token(" falls", -1.0, -1.0), token("!", 0.5, 0.5)],
            "found_by": "new", "named_by": "affinity", "parent": None, "subagents": [sub],
            "kind_by": "default", "temperature": 1.0,
            "signals": [{"judge": "rules", "vote": -1, "votes": [-1, None], "number": None,
                         "hints": [words], "reason": words, "is_hint": False},
                        {"judge": "hindsight", "vote": None, "votes": [], "number": None,
                         "hints": ["Be brief."], "reason": words, "is_hint": True}],
            "samples": [{"id": "s", "state": "trained", "reason": "", "lease": "l", "version": 2,
                         "step": 2, "loss": 0.5, "advantages": [], "gaps": [],
                         "hints": [
                             {"text": words, "by": "rules", "overlap": 3.25, "chosen": 1.0},
                             {"text": "Be brief.", "by": "hindsight", "overlap": 1.0,
                              "chosen": 0.0}]}],
        },
    }
    made.pages["turn/turn_s"] = made.pages["turn/turn_a"] | {"id": "turn_s", "kind": "side"}
    made.pages[f"picture/{PICTURE}"] = {"data": PIXELS}
    for number in (0, 1, 2):
        made.pages[f"version/{number}"] = version(number) | {
            "made_by": [turn], "hints": [{"text": words, "times": 2}], "max_rise": 0.5,
            "answers": [{"turn": "turn_a", "version": number, "before": 0, "asked": request,
                         "old": words, "new": words, "verdict": -1, "why": "longer",
                         "old_tokens": 4, "new_tokens": 9}],
            "under_it": {"version": number, "turns": 8, "tokens": 80, "up": 6, "down": 2},
        }
    made.done = {"forget": {"turns": 2, "forgotten": 2, "learned": [1], "carried": [1, 2],
                            "back_to": 0, "in_step": 1},
                 "export": {"folder": "/runs/x/exports/v1", "number": 1},
                 "rollback": {"number": 3}, "exclude": {"taken_back": 1},
                 "quarantine": {"done": {"turn_b": "queued"}}, "pause": {"until": 9.0}}
    return made


PAGES = ("/", "/turns/turn_a", "/conversations", "/conversations/trace_a",
         "/conversations/trace_a?forget=1", "/conversations/trace_c", "/requests", "/quarantine",
         "/versions", "/versions/2", "/compare?a=0&b=2", "/people")
