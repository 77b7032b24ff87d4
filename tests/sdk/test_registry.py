"""Finding and checking plugins: mistakes are told in words."""

import subprocess
import sys

import pytest
from pydantic import BaseModel, ConfigDict

from claw.errors import UsageError
from claw.sdk import hookimpl, registry


class Settings(BaseModel):
    model_config = ConfigDict(extra="forbid")

    cors_origin: str = ""
    limit: int = 3


class Good:
    @hookimpl
    def claw_config(self):
        return Settings

    @hookimpl
    def claw_tasks(self, config, split):
        return []


class Plain:
    @hookimpl
    def claw_tasks(self, config, split):
        return []


class Misspelt:
    @hookimpl
    def claw_taks(self, config, split):
        return []


class WrongArgument:
    @hookimpl
    def claw_tasks(self, config, splits):
        return []


def write_plugin(folder, monkeypatch, name, code):
    """Put an entry point on the path, as an installed distribution does."""
    (folder / f"{name}_module.py").write_text(code)
    info = folder / f"claw_env_{name}-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: claw-env-{name}\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(f"[claw]\n{name} = {name}_module\n")
    monkeypatch.syspath_prepend(str(folder))


def test_an_unknown_plugin_is_refused_with_the_nearest_name(tmp_path, monkeypatch):
    write_plugin(tmp_path, monkeypatch, "terminalx", "")
    with pytest.raises(UsageError) as caught:
        registry.load("terminlx")
    said = str(caught.value)
    assert "no plugin 'terminlx'" in said
    assert "did you mean 'terminalx'?" in said
    assert "pip install claw-env-terminlx" in said
    assert caught.value.exit_code == 2


def test_an_installed_plugin_is_listed_without_being_imported(tmp_path, monkeypatch):
    write_plugin(tmp_path, monkeypatch, "loud", "raise RuntimeError('imported')")
    assert registry.Found("loud", "claw-env-loud", "1.2") in registry.installed()


def test_a_plugin_whose_import_fails_says_what_is_missing(tmp_path, monkeypatch):
    write_plugin(tmp_path, monkeypatch, "broken", "import no_such_library")
    with pytest.raises(UsageError, match="no_such_library"):
        registry.load("broken")


def test_a_plugin_from_an_entry_point_brings_its_hooks(tmp_path, monkeypatch):
    code = (
        "from claw.sdk import hookimpl\n"
        "@hookimpl\ndef claw_tasks(config, split):\n    return [split]\n"
    )
    write_plugin(tmp_path, monkeypatch, "fine", code)
    plugin = registry.load("fine")
    assert plugin.hook.claw_tasks(config=None, split="eval") == ["eval"]
    assert plugin.has("claw_tasks") and not plugin.has("claw_app")


def test_a_misspelt_hook_is_refused_and_the_real_ones_are_named():
    with pytest.raises(UsageError) as caught:
        registry.from_object("double", Misspelt())
    assert "claw_taks" in str(caught.value)
    assert "claw_tasks" in str(caught.value)


def test_a_hook_with_a_misspelt_argument_is_refused_in_words():
    with pytest.raises(UsageError, match="splits"):
        registry.from_object("double", WrongArgument())


def test_a_misspelt_setting_is_refused_with_a_suggestion():
    plugin = registry.from_object("double", Good())
    with pytest.raises(UsageError) as caught:
        plugin.settings({"cors_orgin": "x"})
    assert "plugin.double.cors_orgin: no such setting; did you mean 'cors_origin'?" in str(
        caught.value
    )


def test_a_setting_of_the_wrong_kind_names_the_place_and_the_value():
    plugin = registry.from_object("double", Good())
    with pytest.raises(UsageError, match=r"plugin\.double\.limit: .*'many'"):
        plugin.settings({"limit": "many"})


def test_settings_for_a_plugin_without_any_are_refused():
    plugin = registry.from_object("double", Plain())
    assert plugin.settings({}) is None
    with pytest.raises(UsageError, match="has no settings"):
        plugin.settings({"limit": 1})


def test_the_sdk_loads_no_heavy_library():
    code = (
        "import sys, claw.sdk, claw.sdk.registry, claw.sdk.doubles;"
        "print(sorted({'torch','transformers','docker','sglang'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr
