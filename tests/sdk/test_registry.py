"""Finding and checking plugins: mistakes are told in words."""

import subprocess
import sys

import pytest
from pydantic import BaseModel, ConfigDict
from sdk_plugins import write_plugin

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


# --- mistakes that would be silent ---------------------------------------------------------------


class Unmarked:
    @hookimpl
    def claw_env(self, task, config):
        return None

    def claw_tasks(self, config, split):
        return []


def test_a_hook_that_was_not_marked_is_refused_and_not_left_out():
    with pytest.raises(UsageError, match=r"without @hookimpl\n  found: claw_tasks\n"):
        registry.from_object("double", Unmarked())


def test_a_plugin_without_any_hook_is_refused():
    with pytest.raises(UsageError, match="implements no hook"):
        registry.from_object("double", object())


def test_a_plugin_that_fails_while_it_is_imported_says_where(tmp_path, monkeypatch):
    write_plugin(tmp_path, monkeypatch, "failing", "x = 1\n1 / 0\n")
    with pytest.raises(UsageError, match=r"ZeroDivisionError(.|\n)*failing_module\.py:2"):
        registry.load("failing")


def test_two_distributions_with_one_plugin_name_are_refused_by_name(tmp_path, monkeypatch):
    write_plugin(tmp_path, monkeypatch, "twice", "")
    other = tmp_path / "other-1.0.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (other / "entry_points.txt").write_text("[claw]\ntwice = twice_module\n")
    with pytest.raises(UsageError, match="found: claw-env-twice, other"):
        registry.load("twice")


def test_every_hook_call_can_be_traced(caplog):
    caplog.set_level("INFO", logger="claw.sdk.registry")
    plugin = registry.from_object("double", Plain(), trace_hooks=True)
    plugin.hook.claw_tasks(config=None, split="eval")
    assert "hook claw_tasks(config, split)" in caplog.text and __file__ in caplog.text
    assert "hook claw_tasks returned" in caplog.text
