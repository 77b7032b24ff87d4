"""A shell whose working directory, variables and functions outlive each command.

Owns: running one command with the state of the ones before it.
Does not own: programs that want a screen (`screen`), the sandbox.

Each command is a bash of its own that reads the state the last one left. So a command that ends the
shell, replaces it or hangs costs nothing but itself, and no marker in the output has to be trusted.
"""

from dataclasses import dataclass

from claw.sdk.sandbox import Ran, Sandbox

STATE = "/tmp/.shell"
ENTER = f"""
if [ -r {STATE}/vars ]; then . {STATE}/vars 2>/dev/null; fi
if [ -r {STATE}/cwd ]; then cd -- "$(cat {STATE}/cwd)" 2>/dev/null; fi
"""
RUN = f"""
IFS= read -r -d '' __claw_command
exec 2>&1 </dev/null
mkdir -p -m 700 {STATE}
{ENTER}
shopt -s expand_aliases
__claw_save() {{
  local __claw_code=$? __claw_name
  {{
    declare -f
    alias -p
    for __claw_name in $(compgen -v); do
      case $__claw_name in
        __claw_*|BASH*|DIRSTACK|EUID|PPID|UID|SHELLOPTS|FUNCNAME|GROUPS|PIPESTATUS|LINENO|_|IFS|\\
        RANDOM|SRANDOM|SECONDS|EPOCH*|HISTCMD|OPTIND|OPTERR|COMP_WORDBREAKS|SHLVL|CLAW_*) ;;
        *) [[ "${{!__claw_name@a}}" == *r* ]] || declare -p "$__claw_name" ;;
      esac
    done
  }} >{STATE}/vars.$$ 2>/dev/null && mv {STATE}/vars.$$ {STATE}/vars
  pwd >{STATE}/cwd
  exit "$__claw_code"
}}
trap __claw_save EXIT
eval "$__claw_command"
"""


@dataclass(frozen=True, slots=True)
class Done:
    """What became of a command."""

    text: str
    exit_code: int | None
    timed_out: bool = False
    out_of_memory: bool = False

    @property
    def is_good(self) -> bool:
        return self.exit_code == 0


class Shell:
    """`run(command)` again and again."""

    def __init__(self, box: Sandbox, *, user: str, workdir: str, env: dict[str, str]) -> None:
        self._box, self._user, self._workdir, self._env = box, user, workdir, env

    def run(self, command: str, *, timeout_s: float, max_output: int) -> Done:
        """Run one command in bash; it has no input."""
        return done(self.run_argv(["bash", "--noprofile", "--norc", "-c", RUN],
                                  stdin=as_bytes(command) + b"\0", timeout_s=timeout_s,
                                  max_output=max_output))

    def run_argv(
        self, argv: list[str], *, stdin: bytes = b"", timeout_s: float = 20.0,
        max_output: int = 1 << 16,
    ) -> Ran:
        """Run a program as the agent, where the shell started."""
        return self._box.run(argv, stdin=stdin, timeout_s=timeout_s, max_output=max_output,
                             cwd=self._workdir, env=self._env, user=self._user)

    def inside(self, script: str, *args: str, stdin: bytes = b"", timeout_s: float = 20.0,
               max_output: int = 1 << 16) -> Ran:
        """Run a script of ours where the shell is now; `args` are its $1, $2, ..."""
        return self.run_argv(["bash", "--noprofile", "--norc", "-c", ENTER + script, "bash", *args],
                             stdin=stdin, timeout_s=timeout_s, max_output=max_output)


def done(ran: Ran) -> Done:
    return Done(ran.text.replace("\0", ""), ran.exit_code, ran.timed_out, ran.out_of_memory)


def as_bytes(text: str) -> bytes:
    """Return UTF-8; what UTF-8 cannot say becomes `?`, and a NUL ends nothing early."""
    return text.replace("\0", "").encode("utf-8", "replace")
