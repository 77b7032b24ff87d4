"""What the policy is told about its tools, and how results are said to it.

Owns: the words of both protocols.
Does not own: running the tools.
"""

import json
from collections.abc import Iterable, Sequence

from claw.sdk import Message, Task

from .settings import ToolcallConfig
from .tools.tool import Tool
from .tools.toolbox import Observation

BOXED = "Write the final answer as \\boxed{answer}."
SYSTEM = (
    "You solve tasks with tools. To call a tool, write only\n"
    '<tool_call>{"name": "...", "arguments": {...}}</tool_call>\n'
    "and wait: the next message brings its result. The tools:\n{tools}\n"
    "When you know the result: " + BOXED
)

SUM = "Call the calculator, then box its result."
SUM_EXAMPLES = (
    ("<tool_response>542</tool_response>", "\\boxed{542}"),
    ("State the final answer to the following arithmetic problem: 417 + 125 =",
     '<tool_call>{"name": "calculator", "arguments": {"expression": "417 + 125"}}</tool_call>'),
)
"""a small model makes nothing of schemas: it copies the last reply, so the last one is a call"""


def first(task: Task, tools: Iterable[Tool], config: ToolcallConfig) -> list[Message]:
    """Return the first messages: the task's own, after a system message of ours."""
    own = list(task.messages)
    text = BOXED if config.protocol == "template" else _system(tools, config)
    if own and own[0]["role"] == "system":  # templates take one system message
        text = f"{own.pop(0)['content']}\n\n{text}"
    roles = ("user", "assistant")
    shown = [
        {"role": role, "content": text}
        for pair in _examples(config) for role, text in zip(roles, pair, strict=True)
    ]
    return [{"role": "system", "content": text}, *shown, *own]


def results(observations: Sequence[Observation], config: ToolcallConfig) -> list[Message]:
    """Return what the policy sees next; all results of one reply together."""
    if config.protocol == "text":  # one user message: every template has that role
        said = [f"<tool_response>{o.text}</tool_response>" for o in observations]
        return [{"role": "user", "content": "\n".join(said)}]
    return [
        {"role": "tool", "tool_call_id": o.call.id, "content": o.text} for o in observations
    ]


def _examples(config: ToolcallConfig) -> tuple[tuple[str, str], ...]:
    if config.examples is not None:
        return config.examples
    is_sum = config.protocol == "text" and config.has_only_the_calculator
    return SUM_EXAMPLES if is_sum else ()


def _system(tools: Iterable[Tool], config: ToolcallConfig) -> str:
    text = config.system or (SUM if config.has_only_the_calculator else SYSTEM)
    lines = [json.dumps(tool.schema["function"], ensure_ascii=False) for tool in tools]
    return text.replace("{tools}", "\n".join(lines))
