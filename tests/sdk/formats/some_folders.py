"""Task folders on disk, written by hand for each test."""

from pathlib import Path

TOML = """
schema_version = "1.4"
[task]
name = "org/one"
[environment]
docker_image = "claw/base:bookworm"
"""
YAML = "instruction: Do it.\ndifficulty: easy\n"


def harbor(folder: Path, toml: str = TOML, **files: str) -> Path:
    """A Harbor folder that is complete; `files` are added to it, or take the place of its own."""
    base = {"instruction.md": "Do it.\n", "tests/test.sh": "exit 0\n"}
    return put(folder, {"task.toml": toml, **base, **files})


def terminal_bench(folder: Path, yaml: str = YAML, **files: str) -> Path:
    base = {"run-tests.sh": "pytest\n", "tests/test_outputs.py": "", "Dockerfile": "FROM x\n"}
    return put(folder, {"task.yaml": yaml, **base, **files})


def put(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder
