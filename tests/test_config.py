"""Settings: who wins, what is refused, and how it is said."""

from pathlib import Path

import pytest

from claw import config
from claw.errors import UsageError


def refused(*overrides: str) -> str:
    with pytest.raises(UsageError) as caught:
        config.load(overrides=overrides)
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_defaults_are_a_run():
    run = config.load()
    assert (run.train.batch_size, run.loss.k, run.serve.host) == (16, 4, "127.0.0.1")


def test_an_override_wins_over_the_file_and_the_file_over_the_base(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text('model = "file"\n[train]\nlr = 2e-5\nbatch_size = 4\n')
    base = {"train": {"lr": 1e-6, "warmup_steps": 7, "batch_size": 2}, "model": "base"}
    run = config.load(path, ("train.lr=3e-5",), base)
    assert run.train.lr == 3e-5
    assert (run.train.batch_size, run.model) == (4, "file")
    assert run.train.warmup_steps == 7


def test_layers_do_not_change_the_base_they_came_from(tmp_path):
    base = {"train": {"lr": 1e-6}}
    config.load(None, ("train.lr=3e-5",), base)
    assert base == {"train": {"lr": 1e-6}}


def test_overrides_are_toml_values_and_else_plain_words():
    run = config.load(overrides=(
        "lora.targets=['q_proj']", "gate.enabled=false", "model=qwen3-0.6b", "is.mode=proximal",
        "async.max_staleness=2", "plugin.personal.cors_origin=http://localhost:3000",
    ))
    assert run.lora.targets == ("q_proj",)
    assert run.gate.enabled is False
    assert (run.model, run.is_.mode, run.async_.max_staleness) == ("qwen3-0.6b", "proximal", 2)
    assert run.plugin == {"personal": {"cors_origin": "http://localhost:3000"}}


@pytest.mark.parametrize(("override", "said"), [
    ("train.lrr=1", "train.lrr: no such setting; did you mean 'lr'?"),
    ("trian.lr=1", "trian: no such setting; did you mean 'train'?"),
    ("is.capp=3", "is.capp: no such setting; did you mean 'cap'?"),
    ("train.lr=fast", "train.lr: "),
    ("train.lr=-1", "(got -1)"),
    ("loss.subset=studnt", "loss.subset: "),
    ("train.lr", "allowed: a.b=value"),
    ("=3", "not an override"),
    ("model.name=3", "model"),
])
def test_a_mistake_is_named_with_its_place_and_a_way_out(override, said):
    assert said in refused(override)


def test_an_unknown_key_that_resembles_nothing_lists_the_known_ones():
    assert "known: temperature, top_p" in refused("rollout.zzzzzz=1")


def test_an_override_through_a_value_is_refused():
    assert "goes through a value" in refused("model=x", "model.y=3")


@pytest.mark.parametrize(("overrides", "said"), [
    (("loss.w_rl=0", "loss.w_opd=0"), "nothing would be trained"),
    (("train.method=grpo", "loss.teacher=ema"), "asks no teacher"),
    (("is.cap=3",), "is.cap has no effect"),
    (("worker.kind=sglang", "sglang.weights=group"), "has no effect on adapters"),
    (("worker.kind=sglang", "sglang.group_s=5"), "sglang.group_s has no effect"),
    (("worker.kind=sglang", "lora.rank=0", "sglang.weights=group", "sglang.group_s=50"),
     "at most a third of sglang.stall_s"),
    (("judge.base_url=http://x",), "judge.base_url has no effect"),
    (("judge.hindsight=true", "judge.kind=none"), "judge.hindsight has no effect"),
    (("judge.hindsight=true", "train.method=grpo"), "nothing learns from hints"),
    (("judge.hindsight=true", "judge.max_hints=0"), "nothing learns from hints"),
    (("rollout.max_tokens=4096",), "no room for a prompt"),
    (("train.method=grpo", "loss.subset=teacher"), "loss.subset has no effect"),
])
def test_settings_that_contradict_each_other_are_refused_at_start(overrides, said):
    assert said in refused(*overrides)


def test_a_missing_file_and_a_broken_file_are_told_apart(tmp_path):
    with pytest.raises(UsageError, match="no such settings file"):
        config.load(tmp_path / "none.toml")
    broken = tmp_path / "broken.toml"
    broken.write_bytes(b"[train\nlr = \xff")
    with pytest.raises(UsageError, match="not TOML"):
        config.load(broken)


@pytest.mark.parametrize("overrides", [(), ("is.mode=proximal", "is.cap=3.0")])
def test_the_resolved_run_reads_back_as_the_same_run(overrides):
    """Every process of a run is started from the resolved settings."""
    run = config.load(overrides=overrides)
    assert config.parse(config.resolved(run)) == run


@pytest.mark.parametrize("override", [
    "train.lr=" + "1" * 5000, "judge.retries=" + "[" * 5000, "rollout.episode_s=inf",
    "plugin.x.y=nan", "plugin.x.y=2024-02-20", "serve.host=\udc9d",
])
def test_what_no_process_could_be_given_is_refused_in_words(override: str) -> None:
    with pytest.raises(UsageError):
        config.load(None, (override,))


def test_a_settings_file_that_cannot_be_read_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        config.load(tmp_path)
    (tmp_path / "run.toml").write_text(f"seed = {'1' * 5000}")
    with pytest.raises(UsageError, match="not TOML"):
        config.load(tmp_path / "run.toml")


def test_a_public_address_needs_tls_or_a_word_that_says_otherwise():
    assert "travel in the open" in refused("serve.host=0.0.0.0")
    assert config.load(overrides=("serve.host=0.0.0.0", "serve.plain_http=true")).serve.is_public
    tls = ("serve.host=::", "serve.tls_cert=a", "serve.tls_key=b")
    assert config.load(overrides=tls).serve.is_public
    for local in ("127.0.0.1", "127.1.2.3", "localhost", "::1"):
        assert not config.load(overrides=(f"serve.host={local}",)).serve.is_public
    assert "has no effect" in refused("serve.plain_http=true")
    assert "has no effect" in refused(*tls, "serve.plain_http=true")
    assert "set together" in refused("serve.tls_cert=a")


def test_a_long_value_is_not_said_again_in_full():
    assert len(refused("train.lr=" + "x" * 100_000)) < 2000


@pytest.mark.parametrize("value", ["auto", 0, 32])
def test_how_many_questions_are_asked_is_auto_or_a_small_count(value):
    assert config.parse({"better": {"questions": value}}).better.questions == value


@pytest.mark.parametrize("value", [-1, 33, "many", True, 2.5, "8"])
def test_another_number_of_questions_is_refused_in_one_line(value):
    with pytest.raises(UsageError) as caught:
        config.parse({"better": {"questions": value}})
    [line] = [one for one in str(caught.value).splitlines() if "better" in one]
    assert f"better.questions: auto, or a whole number from 0 to 32 (got {value!r})" in line
