"""The gold patch, played as an agent plays: one command that applies it, one that submits.

Owns: the words of these two turns. Does not own: the sandbox, the grading.
"""

import base64
from typing import Any

from claw.sdk import assistant

from .env import SweEnv
from .work import MARKER


def play(env: Any) -> list[Any] | None:
    """Return what the policy says; its patch is then graded several times."""
    assert isinstance(env, SweEnv), "claw_env makes no other"
    instance = env.instance
    if not instance.has_gold:
        return None
    env.runs = env.config.gold_runs
    patch, back = (instance.gold, "") if instance.gold else (instance.defect, " -R")
    return said(env, patch, back)


def said(env: SweEnv, patch: str, back: str = "") -> list[Any]:
    """Return the turns of an agent that applies a patch and submits."""
    coded = base64.encodebytes(patch.encode()).decode()  # no fence or quote can end it early
    apply = (f"cd {env.instance.workdir} && base64 -d <<'EOF' | git apply --whitespace=nowarn"
             f"{back} -\n{coded}EOF")
    if env.config.talk == "tools":
        return [assistant(calls=[("shell_exec", {"command": apply})]),
                assistant(calls=[("finish", {})])]
    return [f"```bash\n{apply}\n```", f"```bash\necho {MARKER}\n```"]
