"""Plugins as an installed distribution has them, for tests."""


def write_plugin(folder, monkeypatch, name, code):
    """Put an entry point on the path, as an installed distribution does."""
    (folder / f"{name}_module.py").write_text(code)
    info = folder / f"claw_env_{name}-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: claw-env-{name}\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(f"[claw]\n{name} = {name}_module\n")
    monkeypatch.syspath_prepend(str(folder))
