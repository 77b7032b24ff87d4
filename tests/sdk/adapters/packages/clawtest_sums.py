"""v0: `load_environment(kind)`: one turn, several turns, tools, and what cannot be played."""

import asyncio
import json

import verifiers as vf
from datasets import Dataset

ROWS = [
    {"question": "2+3?", "answer": "5", "info": json.dumps({"bonus": 0.5})},
    {"question": "4+4?", "answer": "8", "info": json.dumps({"bonus": 0.0})},
]
cleaned: list[str] = []


def last(completion) -> str:
    return next(m.content or "" for m in reversed(completion) if m.role == "assistant")


def correct(completion, answer) -> float:
    return float(last(completion).strip() == answer)


async def bonus(info, state) -> float:
    await asyncio.sleep(0)
    return info["bonus"] if state["is_completed"] else 0.0


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Guess(vf.MultiTurnEnv):
    """Says higher or lower until the number is right."""

    async def env_response(self, messages, state, **kwargs):
        said, wanted = int(messages[-1].content), int(state["answer"])
        if said == wanted:
            state["final_env_response"] = [{"role": "user", "content": "Right!"}]
            return state["final_env_response"]
        word = "higher" if said < wanted else "lower"
        return [{"role": "user", "content": word}]

    @vf.cleanup
    async def note(self, state) -> None:
        cleaned.append(state["answer"])


class Forgets(Guess):
    """Shows the policy the first message only, whatever was said."""

    async def get_prompt_messages(self, state):
        return state["prompt"]


class Samples(vf.SingleTurnEnv):
    async def get_model_response(self, *args, **kwargs):
        raise AssertionError("never asked")


class Broken(Guess):
    async def setup_state(self, state, **kwargs):
        raise vf.Error("no database")


class SandboxEnv(vf.SingleTurnEnv):
    """Named like the one that rents a machine."""


def compared(completions) -> list[float]:
    return [0.0 for _ in completions]


def load_environment(kind: str = "single", system_prompt: str | None = None, **rest):
    data = Dataset.from_list(ROWS)
    rubric = vf.Rubric(funcs=[correct, bonus], weights=[1.0, 2.0])
    extra = vf.Rubric(funcs=[lambda completion: 0.125], weights=[1.0])
    extra.funcs[0].__name__ = "always"
    both = vf.RubricGroup([rubric, extra])
    about = {"dataset": data, "eval_dataset": data.select([1]), "system_prompt": system_prompt}
    if kind == "tools":
        return vf.ToolEnv(tools=[add], rubric=rubric, **about, **rest)
    if kind == "guess":
        return Guess(rubric=rubric, **about, **rest)
    if kind == "judged":
        return vf.SingleTurnEnv(rubric=vf.JudgeRubric(judge_client=object()), **about)
    if kind == "compared":
        return vf.SingleTurnEnv(rubric=vf.Rubric(funcs=[compared]), **about)
    if kind == "hot":
        return vf.SingleTurnEnv(rubric=rubric, sampling_args={"temperature": 2.0}, **about)
    if kind == "images":
        part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
        prompt = [{"role": "user", "content": [part]}]
        return vf.SingleTurnEnv(
            dataset=Dataset.from_list([{"prompt": prompt, "answer": ""}]), rubric=rubric)
    others = {"forgets": Forgets, "samples": Samples, "broken": Broken, "sandbox": SandboxEnv}
    if kind in others:
        return others[kind](rubric=rubric, **about)
    return vf.SingleTurnEnv(rubric=both, **about)
