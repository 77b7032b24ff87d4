"""The settings of the plugin: `[plugin.terminal]`."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class TerminalConfig(BaseModel):
    """Which tasks, how the policy acts, how its work is graded."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    tasks: str = "generated"
    """generated, shipped (the tasks in this package), or a folder of task folders"""
    seed: int = 0
    """of generated tasks; train and eval never share one"""
    train_tasks: int = Field(256, ge=1)
    """generated tasks of the split train"""
    eval_tasks: int = Field(32, ge=1)
    """generated tasks of the split eval"""
    families: tuple[str, ...] = ()
    """kinds of generated tasks; empty: all"""
    level: int = Field(3, ge=1, le=3)
    """hardest level of generated tasks"""
    eval_share: float = Field(0.0, ge=0, lt=1)
    """share of a folder's tasks that is kept for the split eval; 0: both splits hold all of them"""
    talk: Literal["fence", "tools"] = "fence"
    """fence: a reply's first ```bash block is run, which any model can do; tools: tool calls, for
    models whose chat template shows tools"""
    tools: tuple[str, ...] = ()
    """names of the tools that the policy gets; empty: all"""
    command_timeout_s: float = Field(20.0, gt=0)
    """of one command; a tool call may ask for less"""
    max_output: int = Field(4000, ge=200)
    """characters of one result that the policy sees, head and tail"""
    max_parse_errors: int = Field(3, ge=1)
    """replies in a row that are no action, after which the episode ends"""
    timeout_factor: float = Field(1.0, gt=0)
    """the tasks' own time limits times this"""
    outcome: Literal["signed", "fraction", "solved"] = "signed"
    """of the passed fraction r: 2r - 1, r itself, or 1 only if all passed, else 0"""
    score: Literal["tests", "reward"] = "tests"
    """r is the fraction of passed tests in the verifier's report if it wrote one, or its reward"""
    hints: bool = False
    """a failed command makes a hint, which a distilling loss learns from"""
    grading: Literal["shared", "clean"] = "shared"
    """where the tests run: in the agent's container, as Harbor does, or in a fresh one that gets
    the agent's working directory and nothing else"""
    processes: Literal["auto", "keep", "kill"] = "auto"
    """what the agent left running, before the tests; auto keeps it where another user grades"""
    user: str = ""
    """user of the agent, over the task's own; empty: the task's"""
    capabilities: tuple[str, ...] = ()
    """Linux capabilities that a task's root keeps, such as CHOWN for installing packages"""
    network: Literal["task", "none"] = "task"
    """none: no network even for a task that asks for it"""
    build: bool = True
    """whether Dockerfiles of tasks may be built"""
    image: str = "claw/base:bookworm"
    """of generated tasks"""
    memory_mb: int = Field(1024, ge=64)
    """of a task that says nothing"""
    cpus: float = Field(1.0, gt=0)
    """of a task that says nothing"""
    engine: Literal["docker", "bwrap"] = "docker"
    """bwrap runs tasks of this machine's own files without images; by explicit choice only"""
    runtime: str = ""
    """container runtime of the engine, such as runsc; empty: its default"""
    variables: tuple[str, ...] = ()
    """names of environment variables of the runner that tasks may read (`${NAME}` in task.toml)"""
    trajectories: str = ""
    """folder for ATIF trajectories, one file per episode; empty: none is written"""
