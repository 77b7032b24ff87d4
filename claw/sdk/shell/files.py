"""Files as the agent's user reads and writes them, relative to where its shell is.

Owns: read, write and edit, bounded.
Does not own: the sandbox's own file calls, which know no agent and serve the grading.
"""

from claw.sdk.shell.commands import Shell, as_bytes

MAX_FILE = 1 << 20


class FileError(ValueError):
    """Words for the policy: why a file was not read or written."""


def read(shell: Shell, path: str, *, first: int = 1, count: int = 200) -> str:
    """Return lines of a file with their numbers."""
    text = _content(shell, path)
    lines = text.splitlines()
    shown = lines[first - 1 : first - 1 + count]
    if not shown:
        return f"[{len(lines)} lines; nothing from line {first}]"
    numbered = [f"{first + i:>5}\t{line}" for i, line in enumerate(shown)]
    rest = len(lines) - (first - 1 + len(shown))
    return "\n".join([*numbered, *([f"[{rest} more lines]"] if rest > 0 else [])])


def write(shell: Shell, path: str, content: str) -> str:
    """Write a file whole, and the folders that it needs."""
    ran = shell.inside(
        'mkdir -p -- "$(dirname -- "$1")" && cat > "$1"', _path(path), stdin=as_bytes(content),
    )
    if ran.exit_code != 0:
        raise FileError(ran.text.strip()[:300] or f"{path} was not written")
    return f"wrote {len(as_bytes(content))} bytes to {path}"


def edit(shell: Shell, path: str, old: str, new: str) -> str:
    """Replace the one place where `old` stands."""
    text = _content(shell, path)
    if not old:
        raise FileError("old is empty; say which text to replace")
    found = text.count(old)
    if found != 1:
        raise FileError(f"old stands {found} times in {path}; it must stand exactly once")
    return write(shell, path, text.replace(old, new))


def _content(shell: Shell, path: str) -> str:
    ran = shell.inside(
        'if [ -d "$1" ]; then echo "$1 is a folder" >&2; exit 1; fi; head -c "$2" -- "$1"',
        _path(path), str(MAX_FILE + 1), max_output=4 * MAX_FILE,
    )
    if ran.exit_code != 0:
        raise FileError(ran.stderr.decode("utf-8", "replace").strip()[:300])
    if len(ran.stdout) > MAX_FILE:
        raise FileError(f"{path} has more than {MAX_FILE} bytes")
    return ran.stdout.decode("utf-8", "replace")


def _path(path: str) -> str:
    if not path.strip():
        raise FileError("the path is empty")
    return as_bytes(path).decode()
