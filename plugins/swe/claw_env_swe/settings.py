"""The settings of the plugin: `[plugin.swe]`."""

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class SweConfig(BaseModel):
    """Which instances, how the policy acts, how its patch is graded."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    instances: str = "shipped"
    """shipped (those in this package), a file (.jsonl, .json, .parquet), or datasets:ORG/NAME"""
    instances_split: str = "test"
    """split of a `datasets` name"""
    family: Literal["auto", "swe-bench", "swe-gym", "swe-smith", "r2e-gym", "swe-rebench",
                    "slime", "source"] = "auto"
    """what the rows are; auto: told by their columns"""
    only: tuple[str, ...] = ()
    """ids of the instances to take; empty: all"""
    skip: tuple[str, ...] = ()
    """ids of instances to leave out, such as those with flaky tests"""
    eval_share: float = Field(0.25, ge=0, lt=1)
    """share of the instances that is kept for the split eval; 0: both splits hold all of them"""
    hints_text: bool = False
    """whether the policy also sees a row's `hints_text`"""
    talk: Literal["fence", "tools"] = "fence"
    """fence: a reply's first ```bash block is run, as in mini-swe-agent; tools: tool calls"""
    tools: tuple[str, ...] = ("shell_exec", "file_read", "file_edit",
                              "shell_write_content_to_file")
    """names of the tools that the policy gets with talk = "tools"; `finish` is always there"""
    command_timeout_s: float = Field(60.0, gt=0)
    """of one command; a tool call may ask for less or more"""
    max_output: int = Field(8000, ge=200)
    """characters of one result that the policy sees, head and tail"""
    max_parse_errors: int = Field(3, ge=1)
    """replies in a row that are no action, after which the episode ends"""
    max_steps: int = Field(0, ge=0)
    """turns after which the episode ends; 0: only the run's `rollout.max_turns` does"""
    max_cost: float = Field(0.0, ge=0)
    """what an episode may cost by the prices below; 0: no limit"""
    price_in: float = Field(0.0, ge=0)
    """of a million tokens of prompt"""
    price_out: float = Field(0.0, ge=0)
    """of a million sampled tokens"""
    unsubmitted: Literal["grade", "nothing"] = "grade"
    """an episode that a limit or a full context ended: its changes are graded, or count for
    nothing"""
    tampering: Literal["refuse", "reset"] = "refuse"
    """a patch that touches the tests or the evaluation's configuration: refused whole, or graded
    without those files"""
    outcome: Literal["fraction", "solved"] = "fraction"
    """1 for full; for partial the fraction of FAIL_TO_PASS, or 0; for no 0"""
    gold_runs: int = Field(3, ge=1)
    """how often `claw env check` grades the gold patch; tests that differ between them are flaky"""
    hints: bool = False
    """a failed command makes a hint, which a distilling loss learns from"""
    test_timeout_s: float = Field(1800.0, gt=0)
    """of one run of an instance's tests"""
    image: str = "claw/base:bookworm"
    """of instances that are built from a repository"""
    memory_mb: int = Field(2048, ge=64)
    """of a sandbox"""
    cpus: float = Field(1.0, gt=0)
    """of a sandbox"""
    runtime: str = ""
    """container runtime of the engine, such as runsc; empty: its default"""
    trajectories: str = ""
    """folder for ATIF trajectories, one file per episode; empty: none is written"""

    @model_validator(mode="after")
    def _cost_has_a_price(self) -> Self:
        if self.max_cost and not (self.price_in or self.price_out):
            raise ValueError("max_cost needs price_in or price_out")
        return self
