"""What `--openclaw` prints: the provider, the model, and what the model reads."""

import json
from types import SimpleNamespace

import pytest

from claw import config as settings
from claw.engine import openclaw, report
from claw.errors import UsageError


def printed(capsys, *, sees: bool, context: int = 65_536) -> tuple[dict, str]:
    """What a run says whose model takes pictures, or none."""
    launcher = SimpleNamespace(key="sk-x", status=lambda: {
        "context": context, "takes_pictures": sees})
    config = settings.parse({"plugin_name": "personal"})
    report._say_openclaw("http://127.0.0.1:8411", config, launcher)
    said = capsys.readouterr().out
    return json.JSONDecoder().raw_decode(said, said.index("{"))[0], said


def model_of(block: dict) -> dict:
    [served] = block["models"]["providers"]["claw"]["models"]
    return served


@pytest.mark.parametrize(("sees", "reads"), [(False, ["text"]), (True, ["text", "image"])])
def test_a_model_that_sees_is_said_to_take_pictures_and_no_other(capsys, sees, reads):
    block, _ = printed(capsys, sees=sees)
    assert model_of(block)["input"] == reads


def test_the_block_names_the_run_its_context_and_the_plugin(capsys):
    block, said = printed(capsys, sees=False, context=20_000)
    provider = block["models"]["providers"]["claw"]
    assert (provider["baseUrl"], provider["apiKey"]) == ("http://127.0.0.1:8411/v1", "sk-x")
    assert (model_of(block)["contextWindow"], model_of(block)["maxTokens"]) == (20_000, 5000)
    assert block["plugins"]["load"]["paths"][0].endswith("claw_env_personal/openclaw")
    assert "note:" not in said
    assert "takes about 9,000 tokens" in printed(capsys, sees=False, context=8192)[1]


def test_a_plugin_without_an_app_has_nothing_to_print():
    with pytest.raises(UsageError, match="without an app"):
        report._say_openclaw("", settings.parse({"plugin_name": "terminal"}), SimpleNamespace())


def test_without_a_javascript_plugin_the_block_names_none():
    block = openclaw.block("http://h/v1", "k", "m", 40_000, None)
    assert "plugins" not in block
