"""The settings of the plugin: `[plugin.gui]`."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class GuiConfig(BaseModel):
    """Which tasks, how the policy sees and acts, where the desktop is."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    tasks: str = "shipped"
    """shipped (the tasks in this package), or a file, index or folder of OSWorld's JSON"""
    cache: str = ""
    """folder of files that OSWorld has downloaded (<task>/<name>); claw fetches none"""
    eval_share: float = Field(0.3, ge=0, lt=1)
    """share of the tasks that is kept for the split eval; 0: both splits hold all of them, and a
    warning says so"""
    actions: Literal["computer_13", "pyautogui", "computer_use"] = "computer_13"
    """how the policy acts: JSON objects, Python source that is read and never run, or a tool with
    coordinates from 0 to 1000"""
    observation: Literal["auto", "tree", "screenshot", "both"] = "auto"
    """what it sees: the accessibility tree as text, which any model can read, a picture, or both;
    auto: a picture where the run's model is known to see it, else the tree"""
    history: int = Field(3, ge=1)
    """newest observations that stay in what the policy sees; of older ones only the words remain"""
    max_tree_lines: int = Field(120, ge=5)
    """lines of one tree"""
    max_tree_chars: int = Field(6000, ge=200)
    """characters of one tree"""
    width: int = Field(1280, ge=320, le=3840)
    """of the screen, in pixels"""
    height: int = Field(800, ge=240, le=2160)
    """of the screen, in pixels"""
    settle_s: float = Field(2.0, ge=0, le=30)
    """longest wait for the screen to become quiet after an action"""
    step_timeout_s: float = Field(60.0, gt=0)
    """of one step of setting up, and of one getter"""
    max_parse_errors: int = Field(3, ge=1)
    """replies in a row that are no action, after which the episode ends"""
    outcome: Literal["signed", "fraction", "solved"] = "signed"
    """of the score r: 2r - 1, r itself, or 1 only if all is done, else 0"""
    image: str = "claw/desktop:bookworm"
    """container image of the desktop"""
    memory_mb: int = Field(1536, ge=512)
    """of one desktop with its applications"""
    cpus: float = Field(2.0, gt=0)
    """of one desktop"""
    lifetime_s: float = Field(3600.0, ge=60)
    """then a desktop ends by itself, whoever forgot it"""
    runtime: str = ""
    """container runtime of the engine, such as runsc; empty: its default"""
    remote: tuple[str, ...] = ()
    """addresses of virtual machines that run OSWorld's server, such as http://10.0.0.5:5000; each
    is used by one episode at a time, and reverting it is the matter of whoever runs it"""
    trajectories: str = ""
    """folder for trajectories in OSWorld's shape, one folder per episode; empty: none is written"""
    judge_base_url: str = ""
    """an OpenAI-compatible endpoint with a vision model, for judge.kind = "screens"; it
    must take pictures"""
    judge_model: str = ""
    """its model"""
    judge_api_key_env: str = ""
    """name of the variable that holds its key"""
