"""Print the README's tree: every source file with the first line of its docstring.

    python tools/tree.py            print it
    python tools/tree.py --write    put it between the README's ```tree fences
"""

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("claw", "plugins/gui", "plugins/personal", "plugins/swe", "plugins/terminal",
           "plugins/toolcall")
DATA = {"tests", "shipped"}
"""folders whose files are no source of a package"""
OTHER = {
    "Makefile": "demo, test, fuzz, lint, bench, and what the tests need: sglang, docker, ...",
    "tools/install.sh": "makes .venv; the CPU build of torch where there is no GPU",
    "tools/install_sglang.sh": "makes .venv-sglang, the environment of SGLang workers",
    "tools/install_adapters.sh": "makes .venv-adapters: verifiers and openenv, for tests",
    "tools/install_clients.sh": "makes .venv-clients: openai 2, for tests",
    "tools/install_openclaw.sh": "makes .openclaw: the real OpenClaw and its Node, for tests",
    "tools/docker.sh": "brings up a container engine and the base image of sandboxes",
    "tools/desktop.sh": "makes the desktop image of the gui plugin on that base",
    "tools/desktop/Dockerfile": "what is in that image",
    "tools/chromium.sh": "installs the browser that tests look at the dashboard with",
    "tools/tree.py": "prints this tree",
    ".ci/run": "lint and every test on a clean checkout",
    "conftest.py": "test options; a missing real part skips or fails",
}


def phrase(path: Path) -> str:
    """The first line of the file's docstring, without its full stop."""
    doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    first = doc.strip().splitlines()[0]
    return re.split(r"(?<=\w)\.\s", first)[0].rstrip(".:;")


def sources() -> list[Path]:
    files = [f for folder in FOLDERS for f in sorted((ROOT / folder).rglob("*.py"), key=_order)]
    return [f for f in files if not DATA & {*f.parts} and not _is_bare(f)]


def _order(path: Path) -> list[tuple[bool, str]]:
    """Files of a folder come before its folders."""
    parts = path.relative_to(ROOT).parts
    return [(i < len(parts) - 1, part) for i, part in enumerate(parts)]


def _is_bare(path: Path) -> bool:
    is_door = path.name in ("__init__.py", "__main__.py")
    return is_door and len(path.read_text(encoding="utf-8").splitlines()) <= 8


def lines() -> list[str]:
    """The tree, two spaces a level."""
    found: list[str] = []
    seen: list[str] = []
    phrases = {f.relative_to(ROOT).as_posix(): phrase(f) for f in sources()}
    for name, text in [*phrases.items(), *OTHER.items()]:
        *folders, file = name.split("/")
        for depth, folder in enumerate(folders):
            if seen[: depth + 1] != folders[: depth + 1]:
                seen = folders[: depth + 1]
                found.append("  " * depth + folder + "/")
        seen = folders
        found.append("  " * len(folders) + f"{file:<18} {text}")
    return found


def main() -> None:
    block = "```tree\n" + "\n".join(lines()) + "\n```"
    if "--write" not in sys.argv:
        print(block)
        return
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    readme.write_text(re.sub(r"```tree\n.*?```", lambda _: block, text, flags=re.S))


if __name__ == "__main__":
    main()
