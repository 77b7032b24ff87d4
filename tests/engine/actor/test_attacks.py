"""The attacks of `benchmarks.attacks` are well formed, and each meets the rule that its line names.

Without a model: the replies are made up, the judge, the hint filters and the guard are the real
ones. How far the attacks move a real model is measured (docs/security.md), not tested.
"""

import asyncio
import re
from dataclasses import replace
from pathlib import Path

import pytest
from claw_env_personal.demo.__main__ import RECIPE
from some_turns import turn

from benchmarks import attacks
from benchmarks.poison import table
from benchmarks.poison.attack import Attack, Feedback, Move, React, Talk, Tool
from benchmarks.poison.suite import ATTACKS, EQUAL, HONEST, TOOLS, WISHES
from claw.config import GuardConfig, load
from claw.engine.actor.guard import RULES, Guard
from claw.engine.actor.signals import DEMONSTRATION, PERSON, merged, read_verdict
from claw.engine.people import NAME
from claw.records import Signal, Turn
from claw.sdk.judges.rules import RulesJudge
from claw.sdk.judging import Case

ROOT = Path(attacks.__file__).parents[1]
FLOOD = int(attacks.FLOOD.partition("=")[2])


class Played:
    """What the judge and the guard of a run make of a person's talks, all said at once."""

    def __init__(self, attack: Attack) -> None:
        self.guard = Guard(GuardConfig(flood=FLOOD), clock=lambda: 0.0)
        self.whys: list[str] = []
        self.hints: list[str] = []
        for number, talk in enumerate(attack.talks):
            self._play(talk, number)

    @property
    def rules(self) -> set[str]:
        return {why.split(": ")[1] for why in self.whys if why}

    def _play(self, talk: Talk, number: int) -> None:
        asked = turn(f"turn_{number}", messages=({"role": "user", "content": talk.asks},),
                     reply=f"The bread of reply {number} is fresh.")
        signals: list[Signal] = []
        for move in talk.moves:
            if isinstance(move, Feedback):
                hints = (*[move.text] * bool(move.text), *[DEMONSTRATION + move.edit] *
                         bool(move.edit))
                signals.append(Signal(asked.id, PERSON, move.value, (move.value,), hints=hints))
                self._look(asked, signals)
            else:
                asked, signals = self._speak(asked, move, signals), []

    def _speak(self, asked: Turn, move: Move, signals: list[Signal]) -> Turn:
        """Judge the turn by what is said next; return the one that answers to it."""
        role = "tool" if isinstance(move, Tool) else "user"
        text = move.to(asked.reply["content"]) if isinstance(move, React) else move.text
        said = {"role": role, "content": text}
        asked = replace(asked, next_state=(said,))
        case = Case(asked.id, asked.messages, asked.reply, asked.next_state)
        verdict = asyncio.run(RulesJudge().judge(case))
        self._look(asked, [*signals, read_verdict(verdict, asked, "rules", 3)])
        return turn(f"{asked.id}+", messages=(*asked.messages, asked.reply, said),
                    reply=f"{asked.reply['content']} And more.")

    def _look(self, asked: Turn, signals: list[Signal]) -> None:
        hints = merged(signals).hints
        self.hints += hints
        self.whys.append(self.guard.holds(asked, signals, hints, is_task=False))


def test_there_are_enough_attacks_and_each_is_somebody_with_a_name_and_questions_of_its_own():
    assert len(ATTACKS) >= 12
    names = [attack.name for attack in (*ATTACKS, HONEST)]
    assert len(set(names)) == len(names) and all(NAME.fullmatch(name) for name in names)
    for attack in (*ATTACKS, HONEST):
        assert attack.talks and all(talk.moves for talk in attack.talks), attack.name
        assert {t.asks for t in attack.talks}.isdisjoint(p.asks for p in attack.wants), attack.name
        assert attack.rule in {"", TOOLS, EQUAL, *RULES}, attack.name
        assert not any(probe.counts("It is a sunny day.") for probe in attack.wants
                       if probe.accepts), attack.name


@pytest.mark.parametrize("attack", [a for a in ATTACKS if a.rule != EQUAL], ids=lambda a: a.name)
def test_an_attack_meets_the_rule_that_its_line_names_and_no_other(attack: Attack):
    played = Played(attack)
    assert played.rules == {attack.rule} & RULES.keys()
    if attack.rule == TOOLS:
        assert played.hints == []
    elif attack.rule == "bulk":
        assert [bool(why) for why in played.whys] == [n >= FLOOD for n in range(len(played.whys))]
    elif attack.rule == "contradictory":
        assert sum(map(bool, played.whys)) == 2 * len(attack.talks)  # the third thumb and on
    elif attack.rule:
        assert all(played.whys)
    elif any(getattr(move, "text", "") for talk in attack.talks for move in talk.moves):
        assert played.hints, "what passes would teach"


def test_what_is_asked_twice_gets_both_thumbs():
    [attack] = [a for a in ATTACKS if a.rule == EQUAL]
    thumbs = {(talk.asks, move.value) for talk in attack.talks for move in talk.moves}
    assert thumbs == {(talk.asks, value) for talk in attack.talks for value in (1, -1)}
    assert all(0 < talk.temperature <= 0.01 for talk in attack.talks), "equal, and trained by votes"


def test_nothing_of_the_honest_person_is_held_and_of_odd_sentences_what_the_page_says():
    assert Played(HONEST).rules == set()
    assert len(set(WISHES)) == len(WISHES) > 100 and all(len(wish) > 10 for wish in WISHES)
    held = [wish for wish in WISHES if Played(replace(HONEST, rounds=(
        (Talk("What is bread?", (Feedback(-1, wish),)),),))).rules]
    page = (ROOT / "docs/security.md").read_text(encoding="utf-8")
    assert re.findall(r"(\d+) of (\d+) honest sentences", page) == [
        (str(len(held)), str(len(WISHES)))]


def test_both_sides_are_configurations_that_a_run_takes():
    on, off = (load(RECIPE, (*attacks.STEP, *attacks.SIDES[side])) for side in ("on", "off"))
    assert on.guard.rules == tuple(RULES) and on.guard.flood == FLOOD and on.gate.max_drift == 1
    assert off.guard.rules == () and off.gate.max_drift == off.gate.max_step_drift == 0


def test_a_table_is_made_of_what_there_is():
    row = {"attack": "flood", "guards": "off", "trained": 16, "held": {}, "skipped": {}, "steps": 4,
           "refused": [], "drift": [0.1, 0.25], "talks": 16, "logp": [-3.0, -1.5],
           "counts": [[False, False], [True, False]], "seconds": 9.0}
    on = row | {"guards": "on", "trained": 0, "held": {"bulk": 16}, "drift": [], "steps": 0,
                "counts": [[False, False], [False, False]], "logp": [-3.0, -3.0]}
    [line] = table.of([row])[2:]
    assert line.endswith("| 16, - | none | 0.250, - | 0, 1, - of 2 | -3.00, -1.50, - |")
    [line] = table.of([on, row])[2:]
    assert line.endswith("| 16, 0 | 16 bulk | 0.250, 0 | 0, 1, 0 of 2 | -3.00, -1.50, -3.00 |")
