"""Whatever a judge model answers, a person types or a tool prints: the verdict is in its range."""

import asyncio
import json
import math
from random import Random
from typing import Any

import httpx
from some_json import NASTY, changed, cut, one_of, text, value, written
from tried import Tried

from claw.engine.actor import parse
from claw.records import FinishReason
from claw.sdk.judges import model
from claw.sdk.judges.model import JudgeError, ModelJudge
from claw.sdk.judges.rules import RulesJudge
from claw.sdk.judging import Case, Verdict

PIECES = ("\\boxed{1}", "\\boxed{-1}", "\\boxed{0}", "\\boxed{+1}", "\\boxed{ 1 }", "\\boxed{2}",
          "\\boxed{}", "\\boxed{1", "\\boxed{\u22121}", "\\boxed{\u0661}", "\\boxed{1.0}",
          "\\boxed{NaN}", "\\boxed{\\boxed{1}}", "[HINT_START]", "[HINT_END]", "[RULES_START]",
          "[RULES_END]", "- short", "\n- ", "Be brief.", "=" * 12, " ", "\n")
WORDS = ("thanks", "no", "that is wrong", "please", "shorter", "I said", "why?", "in German", "not",
         "Traceback (most recent call last):", "Error: x", "exit code 1", "{\"error\": 1}", "\n\n",
         "```", "\"", "'", ". ", "! ", "- ", "1. ", ": ", "don't", "be", "too long", "HTTP 500")
COMPLETION = ({"choices": [{"message": {"role": "assistant", "content": "\\boxed{1}"}}]},)


def said(random: Random, pieces: tuple[str, ...]) -> str:
    return "".join(random.choice((random.choice(pieces), random.choice(pieces), text(random)))
                   for _ in range(random.randrange(8)))


def check_verdict(verdict: Verdict) -> None:
    assert verdict.vote in (None, -1, 0, 1) and set(verdict.votes) <= {None, -1, 0, 1}
    assert verdict.number is None or math.isfinite(verdict.number)
    assert all(isinstance(hint, str) and hint.strip() for hint in verdict.hints)
    assert verdict.vote is not None or verdict.hints or verdict.reason
    json.dumps(verdict.reason).encode("ascii")


def a_case(random: Random) -> Case:
    def message(role: str) -> dict[str, Any]:
        words = said(random, WORDS)
        made: dict[str, Any] = {"role": role, "content": random.choice(
            (words, words, words * 50, None, [{"type": "text", "text": words}], [words, {}]))}
        if random.random() < 0.2:
            names = ("is_error", "status", "exit_code", "Error-Message", text(random))
            made[random.choice(names)] = value(random)
        return made

    after = tuple(message(random.choice(("user", "tool"))) for _ in range(random.randrange(3)))
    reply = message("assistant")
    if random.random() < 0.2:
        reply["tool_calls"] = [{"function": {"name": text(random), "arguments": text(random)}}]
    return Case("turn", (message("system"), message("user")), reply, after)


def test_answers_of_a_judge_are_votes_and_hints_or_nothing(tried: Tried) -> None:
    def check(answer: str) -> None:
        vote = model.vote_in(answer)
        assert vote in (None, -1, 0, 1)
        if vote is not None:
            assert "\\boxed" in answer
        hint, rules = model.hint_in(answer), model.rules_in(answer)
        assert hint is None or isinstance(hint, str)
        assert rules is None or all(isinstance(rule, str) for rule in rules)

    tried(check, lambda random: said(random, PIECES), 250)


def test_a_model_judge_has_a_verdict_on_any_case_and_any_answer(tried: Tried) -> None:
    def make(random: Random) -> tuple[Case, list[str]]:
        return a_case(random), [said(random, PIECES) for _ in range(12)]

    def check(made: tuple[Case, list[str]]) -> None:
        case, answers = made

        async def ask(messages: Any, temperature: float, max_tokens: int) -> str:
            json.dumps(messages, ensure_ascii=False).encode("utf-8")
            return answers.pop()

        check_verdict(asyncio.run(ModelJudge(ask, votes=3, max_hints=2).judge(case)))

    tried(check, make, 50)


def test_the_rules_judge_has_a_verdict_on_any_case(tried: Tried) -> None:
    def check(case: Case) -> None:
        judge = RulesJudge()
        check_verdict(asyncio.run(judge.judge(case)))
        wishes = asyncio.run(judge.look_back((*case.request, case.reply, *case.next_state)))
        assert all(isinstance(wish, str) and wish for wish in wishes)

    tried(check, a_case, 60)


def test_any_answer_of_a_judges_endpoint_is_text_or_a_judges_error(tried: Tried) -> None:
    def make(random: Random) -> bytes:
        return one_of(random, lambda r: written(changed(r, COMPLETION)),
                      lambda r: cut(r, written(COMPLETION[0])), lambda r: written(value(r)))

    def check(body: bytes) -> None:
        try:
            assert isinstance(model._answer(httpx.Response(200, content=body)), str)
        except JudgeError as error:
            assert 0 < len(str(error)) < 500

    tried(check, make, 100)


def test_any_reply_is_read_and_its_calls_are_json(tried: Tried) -> None:
    call = '{"name": "ls", "arguments": {"p": 1}}'
    pieces = ("<tool_call>", "</tool_call>", "<think>", "</think>", call, "\n", "<|python_tag|>",
              ";", call.replace("1", "NaN"), call.replace("1", "1e999"), *NASTY)

    def make(random: Random) -> tuple[str, parse.Markup]:
        whole = "".join(random.choices(pieces, k=random.randrange(6)))
        if random.random() < 0.5:
            changed_call = written(changed(random, (json.loads(call),))).decode()
            whole += f"<tool_call>{changed_call}</tool_call>"
        return whole, parse.Markup(random.choice(("", "hermes", "llama")), random.random() < 0.5,
                                   random.random() < 0.5)

    def no_constant(name: str) -> None:
        raise AssertionError(f"a call says {name}")

    def check(made: tuple[str, parse.Markup]) -> None:
        message, _ = parse.reply(*made, FinishReason.STOP)
        assert message["role"] == "assistant"
        for one in message.get("tool_calls") or ():
            arguments = json.loads(one["function"]["arguments"], parse_constant=no_constant)
            assert isinstance(arguments, dict) and one["function"]["name"]

    tried(check, make, 150)
