"""What SGLang is asked and what it answers, without SGLang: shapes as version 0.5.23 sends them."""

import json
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import numpy as np
import pytest

from claw import config as settings
from claw.engine.worker import sglang
from claw.engine.worker.engine import Ask, EngineError
from claw.errors import UsageError
from claw.records import Sampling

LEAST = -3.4028234663852886e38
"""how SGLang says minus infinity"""


def answer(logps, ids=None, top=None, finish=None, **meta):
    """A cumulative answer: entries are (log-prob, id, text)."""
    ids = list(range(10, 10 + len(logps))) if ids is None else ids
    entries = [(p, i, None) for p, i in zip(logps, ids, strict=True)]
    return {"output_ids": list(ids), "meta_info": {
        "finish_reason": finish, "output_token_logprobs": entries, "cached_tokens": 7,
        **({} if top is None else {"output_top_logprobs": top}), **meta}}


def ask(**sampling):
    sampling = {"temperature": 0.7} | sampling
    return Ask("r1", [1, 2], Sampling(**sampling), 12, (5, 6), None)


def test_cumulative_answers_become_increments():
    s, out = Sampling(logprobs_k=0), answer([-1.0])
    first = sglang.read_part(out, 0, s)
    assert first.arrays["ids"].tolist() == [10] and not first.finish and first.cached == 7
    # the lists of an answer grow while it is read: the ids may be ahead of their numbers
    out["output_ids"].extend([11, 12])
    assert not len(sglang.read_part(out, 1, s).arrays["ids"])
    out["meta_info"]["output_token_logprobs"].append((-2.0, 11, None))
    assert sglang.read_part(out, 1, s).arrays["logps"].tolist() == [-2.0]
    last = sglang.read_part(answer([-1, -2, -3], finish={"type": "length", "length": 3}), 2, s)
    assert last.arrays["ids"].tolist() == [12] and last.finish == "length"


def test_the_last_answer_must_be_whole():
    out = answer([-1.0], finish={"type": "stop", "matched": 10})
    out["output_ids"].append(11)
    with pytest.raises(EngineError, match="not whole"):
        sglang.read_part(out, 0, Sampling(logprobs_k=0))


@pytest.mark.parametrize("wrong", [None, float("nan"), float("-inf"), float("inf"), LEAST])
@pytest.mark.parametrize("at", [0, 1])
def test_log_probs_that_are_no_numbers_make_an_answer_unusable_by_position(wrong, at):
    logps = [-1.0, -1.0]
    logps[at] = wrong
    with pytest.raises(EngineError, match=f"token {at + 3}"):
        sglang.numbers(logps, 3)
    top = [[(-1.0, 4, None), (-2.0, 5, None)], [(-1.0, 4, None), (-2.0, 5, None)]]
    top[at][1] = (wrong, 5, None)
    with pytest.raises(EngineError, match=f"token {at}"):
        sglang.read_part(answer([-1.0, -2.0], top=top), 0, Sampling(logprobs_k=2))


def test_log_probs_of_other_tokens_are_refused():
    out = answer([-1.0, -2.0])
    out["output_ids"] = [10, 99]
    with pytest.raises(EngineError, match="other tokens"):
        sglang.read_part(out, 0, Sampling(logprobs_k=0))


def test_top_k_is_best_first_with_ties_to_the_lowest_id():
    top = [[(-0.5, 9, None), (-1.0, 8, None), (-1.0, 3, None)]]
    part = sglang.read_part(answer([-0.5], ids=[9], top=top), 0, Sampling(logprobs_k=3))
    assert part.arrays["topk_ids"].tolist() == [[9, 3, 8]]
    assert part.arrays["topk_logps"].tolist() == [[-0.5, -1.0, -1.0]]
    none = sglang.read_part(answer([-0.5]), 0, Sampling(logprobs_k=0))
    assert none.arrays["topk_ids"].shape == (1, 0)
    with pytest.raises(EngineError, match="lengths"):
        sglang.read_topk([[(-1.0, 1, None)], None], 2, 0)


def test_what_truncation_kept_comes_with_its_log_probs():
    out = answer([-1.0, -2.0], output_token_sampling_mask=[[10, 4], [11]],
                 output_token_sampling_logprobs=[-0.3, 0.0])
    arrays = sglang.read_part(out, 0, Sampling(top_p=0.9, logprobs_k=0)).arrays
    assert arrays["kept_ids"].tolist() == [10, 4, 11] and arrays["kept_counts"].tolist() == [2, 1]
    np.testing.assert_allclose(arrays["sampling_logps"], [-0.3, 0.0])


def test_a_score_has_a_number_for_every_token_but_the_first():
    meta = {"finish_reason": {"type": "length", "length": 0},
            "input_token_logprobs": [(None, 3, None), (-1.0, 4, None), (-2.0, 5, None)],
            "input_top_logprobs": [None, [(-1.0, 4, None)], [(-0.5, 9, None)]]}
    got = sglang.read_scores({"meta_info": meta}, [3, 4, 5], 1)
    assert got.logps.tolist() == [-1.0, -2.0] and got.topk_ids.tolist() == [[4], [9]]
    with pytest.raises(EngineError, match="other tokens"):
        sglang.read_scores({"meta_info": meta}, [3, 4, 5, 6], 1)
    with pytest.raises(EngineError, match="top-k"):
        sglang.read_scores({"meta_info": meta | {"input_top_logprobs": None}}, [3, 4, 5], 1)
    with pytest.raises(EngineError, match="gave a score up"):
        sglang.read_scores({"meta_info": {"finish_reason": {"type": "abort"}}}, [3, 4, 5], 0)


def test_seeds_count_in_the_repeatable_mode_only_and_none_is_ever_shared():
    assert "sampling_seed" not in sglang.sampling_params(ask(seed=5))
    assert sglang.sampling_params(ask(seed=5), seeded=True)["sampling_seed"] == 5
    drawn = {sglang.sampling_params(ask(), seeded=True)["sampling_seed"] for _ in range(50)}
    assert len(drawn) == 50


@pytest.mark.parametrize(("sampling", "wanted"), [
    (dict(), {"temperature": 0.7, "top_p": 1.0, "top_k": -1}),
    (dict(top_k=40), {"top_k": 40, "top_p": 1.0}),
    (dict(top_p=0.9), {"top_k": sglang.KEPT, "top_p": 0.9}),
    (dict(top_k=9000, top_p=0.5), {"top_k": sglang.KEPT, "top_p": 0.5}),
    # greedy to SGLang, whose log-probs are then those of temperature 1 now and then
    (dict(top_k=1), {"temperature": 0.7, "top_k": 2, "top_p": 1e-6}),
    (dict(temperature=0.0, top_k=1, top_p=0.1), {"temperature": 0.0, "top_k": -1, "top_p": 1.0}),
])
def test_sampling_is_asked_in_sglangs_words(sampling, wanted):
    params = sglang.sampling_params(ask(**sampling))
    assert wanted.items() <= params.items()
    assert params["stop_token_ids"] == [5, 6] and params["max_new_tokens"] == 12
    assert "stop_token_ids" not in sglang.sampling_params(ask(ignore_eos=True, **sampling))


def arguments(changes=(), *, on_gpu=False, shim=True, longest=8192):
    config = settings.load(overrides=("worker.kind=sglang", *changes))
    return sglang.arguments(config, Path("model"), longest, on_gpu=on_gpu, shim=shim)


def test_the_engine_is_started_for_the_machine():
    cpu, gpu = arguments(), arguments(on_gpu=True, changes=("sglang.memory=0.6",))
    assert (cpu["device"], cpu["dtype"], cpu["model_impl"]) == ("cpu", "float32", "sglang")
    assert cpu["lora_backend"] == "torch_native" and cpu["max_lora_rank"] == 16
    assert cpu["max_total_tokens"] == 16384 and cpu["context_length"] == 4096 + sglang.MARGIN
    assert (gpu["device"], gpu["dtype"], gpu["mem_fraction_static"]) == ("cuda", "bfloat16", 0.6)
    assert not {"max_total_tokens", "model_impl", "lora_backend"} & set(gpu)
    assert arguments(longest=512)["context_length"] == 512
    bare = arguments(["lora.rank=0"], shim=False)
    assert bare["model_impl"] == "transformers" and "enable_lora" not in bare


def test_settings_that_cannot_be_honoured_are_errors_at_start():
    with pytest.raises(UsageError, match=r"claw-sglang-cpu[\s\S]*lora.rank"):
        arguments(shim=False)
    with pytest.raises(UsageError, match="dtype"):
        arguments(["sglang.arguments={dtype='float16'}"])
    for device in ("mps", "cuda", "cuda:1"):
        with pytest.raises(UsageError, match="cannot use this device"):
            arguments([f"worker.device={device}"])
    assert arguments(["worker.device=cuda:1"], on_gpu=True)["base_gpu_id"] == 1
    assert arguments(["sglang.arguments={tp_size=2}"])["tp_size"] == 2
    assert arguments(["sglang.arguments={dp_size=2}"])["dp_size"] == 2
    with pytest.raises(UsageError, match="tensor parallelism only"):
        arguments(["sglang.arguments={dp_size=2}", "sglang.weights=group", "lora.rank=0"])


@pytest.mark.parametrize(("found", "words"), [
    ("0.5.22", r"0\.5\.22[\s\S]*0\.5\.23[\s\S]*make sglang"), (None, "not installed"),
])
def test_another_sglang_is_refused_by_name(found, words, monkeypatch):
    def version(_):
        if found is None:
            raise PackageNotFoundError
        return found

    monkeypatch.setattr(sglang, "version", version)
    with pytest.raises(UsageError, match=words):
        sglang.check_version()


def test_the_engines_side_of_claw_loads_no_torch():
    modules = "claw.engine.worker.sglang, claw.engine.worker.host_process"
    code = (f"import json, sys, {modules}; print(json.dumps(sorted(m for m in sys.modules "
            "if m.split('.')[0] in ('claw', 'torch', 'transformers', 'sglang', 'peft'))))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == ENGINE_SIDE


def test_the_worker_beside_an_engine_loads_no_torch():
    code = ("import sys, claw.engine.worker.worker, claw.engine.worker.hosted; "
            "print({'torch', 'transformers', 'sglang', 'peft'} & set(sys.modules))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


ENGINE_SIDE = [
    "claw", "claw.config", "claw.engine", "claw.engine.buckets", "claw.engine.door",
    "claw.engine.faults", "claw.engine.parent", "claw.engine.pictures", "claw.engine.process",
    "claw.engine.pulse",
    "claw.engine.tensors", "claw.engine.versions", "claw.engine.wire",
    "claw.engine.worker", "claw.engine.worker.adapter_files", "claw.engine.worker.arrival",
    "claw.engine.worker.backend",
    "claw.engine.worker.engine", "claw.engine.worker.group", "claw.engine.worker.held_request",
    "claw.engine.worker.host",
    "claw.engine.worker.host_process", "claw.engine.worker.sglang", "claw.engine.worker.shelf",
    "claw.errors", "claw.records",
]
