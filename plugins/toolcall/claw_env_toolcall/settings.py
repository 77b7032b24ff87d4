"""The settings of the plugin: `[plugin.toolcall]`."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class McpConfig(Section):
    """One MCP server, started for each episode (command) or reached over HTTP (url)."""

    command: str = ""
    """program of a stdio server"""
    args: tuple[str, ...] = ()
    """its arguments"""
    env: dict[str, str] = {}
    """variables it gets beside HOME, PATH and the like; nothing else of this process's"""
    url: str = ""
    """address of a streamable HTTP server"""
    token_env: str = ""
    """name of the environment variable with the bearer token for url"""
    start_s: float = Field(30.0, gt=0)
    """seconds it may take to answer the first time"""

    @model_validator(mode="after")
    def _is_one(self) -> "McpConfig":
        if bool(self.command) == bool(self.url):
            raise ValueError("an MCP server has a command or a url, one of them")
        if self.url and (self.args or self.env):
            raise ValueError("args and env have no effect: the server is reached by url")
        if self.command and self.token_env:
            raise ValueError("token_env has no effect: the server is started by command")
        return self


class PythonConfig(Section):
    """The sandbox of the tool `python`."""

    image: str = "claw/base:bookworm"
    """image with python3"""
    memory_mb: int = Field(512, ge=64)
    """of the whole sandbox"""


class ToolcallConfig(Section):
    """Which tasks, which tools, and how answers are paid."""

    tasks: Literal["gym", "rows"] = "gym"
    """gym: made by reasoning-gym, nothing to download; rows: a JSONL file"""
    seed: int = 0
    """of generated tasks"""
    gym: str = "chain_sum"
    """a data set of reasoning-gym; those whose checker runs the answer as code are refused"""
    gym_settings: dict[str, Any] = {
        "min_terms": 2, "max_terms": 2, "min_digits": 3, "max_digits": 3,
    }
    """arguments of the data set"""
    train_size: int = Field(512, ge=1)
    """generated tasks to learn from"""
    eval_size: int = Field(64, ge=1)
    """generated tasks held out; none of them is among the tasks to learn from"""
    rows: str = ""
    """JSONL file of tasks to learn from (see the README for its fields)"""
    eval_rows: str = ""
    """JSONL file of held-out tasks"""

    tools: tuple[str, ...] = ("calculator",)
    """calculator, python (needs a Docker engine), or functions as `module:function`"""
    mcp: dict[str, McpConfig] = {}
    """MCP servers by name; all their tools are offered"""
    python: PythonConfig = PythonConfig()
    protocol: Literal["text", "template"] = "text"
    """text: tools stand in the system message, for any model; template: the model's chat template
    shows them, for models trained with tools"""
    system: str = ""
    """replaces the system message of protocol text; `{tools}` in it becomes the schemas. Empty: the
    format of calls and all schemas; for the calculator alone one sentence"""
    examples: tuple[tuple[str, str], ...] | None = None
    """pairs of a message and a good reply, shown before each task: small models copy what they see
    done. Unset: a sum, for the calculator alone"""
    max_calls: int = Field(16, ge=1)
    """tool calls of one episode"""
    observation_chars: int = Field(1024, ge=64)
    """longer results are cut in the middle"""
    call_s: float = Field(10.0, gt=0)
    """seconds of one tool call"""
    total_s: float = Field(120.0, gt=0)
    """seconds of tool calls in one episode"""

    answers: Literal["strict", "lenient"] = "strict"
    """strict: only the last \\boxed{} of the last reply, and a part of an answer is worth nothing;
    lenient: also `Answer: ...`, else the last number, else the last line; parts are paid"""
    checker: Literal["auto", "exact", "number", "math"] = "auto"
    """of rows without one of their own; auto: math-verify"""
    tool_bonus: bool = False
    """a wrong answer is paid -1 + (calls - 2) * 0.05, at most -0.6, instead of -1"""
    hints: bool = False
    """a failed tool call gives a hint; needs a train.method that uses hints"""

    @property
    def has_only_the_calculator(self) -> bool:
        return self.tools == ("calculator",) and not self.mcp

    @model_validator(mode="after")
    def _can_be_honoured(self) -> "ToolcallConfig":
        if self.tasks == "rows" and not self.rows:
            raise ValueError("tasks = \"rows\" needs rows, a JSONL file")
        if self.tasks == "gym" and (self.rows or self.eval_rows):
            raise ValueError("rows has no effect: tasks = \"gym\"")
        if self.tasks == "gym" and self.checker != "auto":
            raise ValueError("checker has no effect: generated tasks bring their own")
        if (self.system or self.examples is not None) and self.protocol == "template":
            raise ValueError("system and examples have no effect with protocol = \"template\"")
        if "python" not in self.tools and self.python != PythonConfig():
            raise ValueError("python has no effect: tools does not name it")
        if len(set(self.tools)) != len(self.tools):
            raise ValueError("tools names one twice")
        return self
