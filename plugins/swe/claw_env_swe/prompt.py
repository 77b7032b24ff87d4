"""What the policy is told at the start."""

from claw.sdk import Message

from .instance import Instance
from .settings import SweConfig
from .work import MARKER

FENCE = """You are a software engineer. You mend a repository in {workdir} through a Linux shell.
Each time, think, then write one block like this, and nothing after it:
```bash
ls
```
The block is run and you see its output. The working directory and variables are kept.
Change the source, not the tests. When the problem is solved, submit your changes with
```bash
echo {marker}
```"""
TOOLS = """You are a software engineer. You mend a repository in {workdir}. Act through the tools:
run commands, read and edit files. The working directory and variables of the shell are kept between
commands. Change the source, not the tests. When the problem is solved, call finish."""
PROBLEM = """The repository in {workdir} has this problem:

{problem}"""


def messages(instance: Instance, config: SweConfig) -> list[Message]:
    """Return the system message and the problem, as its author wrote it."""
    system = FENCE if config.talk == "fence" else TOOLS
    text = PROBLEM.format(workdir=instance.workdir, problem=instance.problem.strip())
    if config.hints_text and instance.hints_text.strip():
        text += f"\n\nWhat others said about it:\n\n{instance.hints_text.strip()}"
    return [
        {"role": "system", "content": system.format(workdir=instance.workdir, marker=MARKER)},
        {"role": "user", "content": text},
    ]
