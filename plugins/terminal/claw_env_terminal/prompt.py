"""What the policy is told at the start."""

from claw.sdk import Message
from claw.sdk.formats.folder import TaskFolder

from .settings import TerminalConfig

FENCE = """You work in a Linux shell to complete a task.
Each time, write one block like this, and nothing after it:
```bash
ls
```
The block is run and you see its output. The working directory and variables are kept.
When the task is complete, write DONE instead of a block."""

TOOLS = """You work on a Linux machine to complete a task. Act through the tools: run commands,
use programs on a screen, read and write files. The working directory and variables of the shell
are kept between commands. When the task is complete, call finish."""


def messages(folder: TaskFolder, config: TerminalConfig) -> list[Message]:
    """Return the system message and the task's instruction, as its author wrote it."""
    system = FENCE if config.talk == "fence" else TOOLS
    return [
        {"role": "system", "content": system},
        {"role": "user", "content": folder.instruction},
    ]
