"""What an agent has done: the difference to the commit that it began with.

Owns: taking the patch out of the agent's sandbox, or out of what it submitted.
Does not own: whether the patch is allowed (`guard`), what it is worth (`grade`).
"""

from dataclasses import dataclass

from claw.sdk.sandbox import Sandbox

MAX_PATCH = 4 << 20
DIFF_S = 120.0
MARKER = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
"""mini-swe-agent's word: a command whose first line of output it is submits the lines after it"""
DIFF = """
cd "$1" || exit 1
git add -A && exec git -c core.quotePath=true -c diff.noprefix=false -c diff.mnemonicPrefix=false \\
  diff --cached --binary --no-color --no-ext-diff --no-textconv --src-prefix=a/ --dst-prefix=b/ "$2"
"""


@dataclass(frozen=True, slots=True)
class Work:
    """A patch, or why there is none."""

    patch: bytes = b""
    problem: str = ""


def base_of(box: Sandbox, workdir: str, user: str) -> str:
    """Return the commit that the agent begins with."""
    return box.run(["git", "-C", workdir, "rev-parse", "HEAD"], user=user).text.strip()


def of_box(box: Sandbox, workdir: str, base: str, user: str) -> Work:
    """Return all changes of files since `base`, also committed and untracked ones."""
    box.sweep()
    ran = box.run(["bash", "--noprofile", "--norc", "-c", DIFF, "bash", workdir, base], user=user,
                  timeout_s=DIFF_S, max_output=MAX_PATCH, cwd="/")
    if ran.exit_code != 0:
        said = ran.stderr.decode("utf-8", "replace").strip()[-200:]
        return Work(problem=f"the changes cannot be read: {said or ran.exit_code}")
    if ran.truncated:
        return Work(problem=f"the patch has more than {MAX_PATCH} bytes")
    return Work(ran.stdout)


def submitted(output: str, *, exit_code: int | None) -> str | None:
    """Return what a command submits, if it submits."""
    first, _, rest = output.lstrip("\n").partition("\n")
    return rest if exit_code == 0 and first.strip() == MARKER else None


def of_text(text: str) -> Work | None:
    """Return the patch that was submitted as text; None when it is not one."""
    return Work(text.encode()) if text.lstrip().startswith("diff --git ") else None
