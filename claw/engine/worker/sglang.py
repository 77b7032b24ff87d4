"""SGLang's own interface: every call into it, and the shapes of its answers.

Owns: the version check, the engine's arguments, requests and answers, adapters and weights.
Does not own: the actor's requests and swaps (host), versions (shelf).

`python -m claw.engine.worker.sglang --spec FILE.json` is the process of an engine, in SGLang's
environment. SGLang's interface moves from version to version and much of what is used here is
internal to it, so one version is served. Nothing of it is imported before the process starts.

Facts that decide the code: log-probs of sampled tokens are of softmax(logits / temperature), those
of greedy batches and of given tokens of temperature 1; streamed answers are cumulative; an abort
matches every id that starts with it.
"""

import asyncio
import os
import secrets
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path
from typing import Any

import numpy as np

from claw.config import RunConfig
from claw.engine import buckets
from claw.engine.tensors import Checksums
from claw.engine.versions import VersionError
from claw.engine.worker.backend import EngineLost
from claw.engine.worker.engine import Ask, Bucket, EngineError, Offer, Part, Scores
from claw.engine.worker.shelf import MAX_HELD
from claw.errors import UsageError
from claw.records import Sampling

VERSION = "0.5.23"
PLUGINS, SHIM = "sglang.srt.plugins", "claw_cpu"
MARGIN = 8
"""tokens that SGLang keeps free of the context"""
CPU_CACHE = 16384
ONE = 1e-6
"""a top_p that keeps the most likely id only"""
KEPT = 4096
"""ids that SGLang can name as kept by truncation; truncated replies are drawn from so many"""
LEAST = -1e30
"""SGLang says the smallest float32 for minus infinity"""
SEEDED = "enable_deterministic_inference"
"""SGLang's argument under which seeds count; it takes a GPU"""
SHARED, SPARE = Path("/dev/shm"), 64 * 1024 * 1024
"""where shared memory lies, and what is left free of it in bytes"""
CUT = ("output_token_sampling_mask", "output_token_sampling_logprobs")
OWN = ("model_path", "device", "dtype", "model_impl", "context_length", "skip_tokenizer_init",
       "max_running_requests", "enable_lora", "max_lora_rank", "lora_target_modules")


def check_version() -> None:
    """Refuse an SGLang that is not the one these calls were written for."""
    install = "make its environment: make sglang"
    try:
        found = version("sglang")
    except PackageNotFoundError:
        raise UsageError("sglang is not installed in this environment", do=install) from None
    if found != VERSION:
        raise UsageError("this SGLang is not the one that claw serves with", found=found,
                         allowed=VERSION, do=install)


def has_shim() -> bool:
    """Whether the plugin is here that lets SGLang's own models and adapters run without a GPU."""
    return SHIM in entry_points(group=PLUGINS).names


def arguments(config: RunConfig, model_dir: Path, model_context: int, *, on_gpu: bool,
              shim: bool) -> dict[str, Any]:
    """What the engine is started with; what the settings ask and it cannot do is an error."""
    w, more = config.worker, config.sglang.arguments
    if both := sorted(set(more) & set(OWN)):
        raise UsageError("sglang.arguments names what claw sets itself", found=", ".join(both))
    if config.lora.rank and not (on_gpu or shim):
        raise UsageError("without a GPU, SGLang serves adapters only with the plugin "
                         "claw-sglang-cpu", found=f"lora.rank = {config.lora.rank}",
                         do="set lora.rank=0, or install the plugin: make sglang")
    if w.device == "mps" or (w.device.startswith("cuda") and not on_gpu):
        raise UsageError("SGLang cannot use this device here", found=f"worker.device = {w.device}",
                         allowed="auto, cpu, or a GPU that is there")
    context = min(w.context + MARGIN, model_context)
    values: dict[str, Any] = {
        "model_path": str(model_dir), "skip_tokenizer_init": True, "context_length": context,
        "max_running_requests": w.slots, "log_level": "warning", "sleep_on_idle": True,
        "device": "cuda" if on_gpu else "cpu", "random_seed": config.seed,
        "dtype": w.dtype if w.dtype != "auto" else "bfloat16" if on_gpu else "float32",
    }
    if not on_gpu:
        wanted = config.sglang.cache_tokens or min(CPU_CACHE, w.slots * context)
        values |= {"max_total_tokens": max(wanted, context + MARGIN),
                   "model_impl": "sglang" if shim else "transformers"}
    elif config.sglang.cache_tokens:
        values["max_total_tokens"] = config.sglang.cache_tokens
    if w.device.startswith("cuda:"):
        values["base_gpu_id"] = int(w.device.removeprefix("cuda:"))
    if on_gpu and config.sglang.memory:
        values["mem_fraction_static"] = config.sglang.memory
    if config.lora.rank:
        values |= {"enable_lora": True, "max_lora_rank": config.lora.rank,
                   "lora_target_modules": list(config.lora.targets),
                   "max_loras_per_batch": MAX_HELD + 1}
        values |= {} if on_gpu else {"lora_backend": "torch_native"}
    if config.sglang.weights == "group" and (
            wide := [n for n in ("dp_size", "pp_size") if more.get(n, 1) != 1]):
        raise UsageError("SGLang's group for weights knows tensor parallelism only",
                         found=f"sglang.arguments.{wide[0]} = {more[wide[0]]}",
                         do="set sglang.weights=folder")
    return values | more


def run_scheduler(group_s: float, *args: Any, **more: Any) -> None:
    """SGLang's own scheduler, with a deadline in its groups for weights.

    It gives them half an hour, in which nothing else of it moves.
    """
    from sglang.srt.managers.scheduler import run_scheduler_process
    from sglang.srt.model_executor.model_runner_components import weight_updater

    weight_updater.init_custom_process_group = partial(
        weight_updater.init_custom_process_group, timeout=timedelta(seconds=group_s))
    run_scheduler_process(*args, **more)


def sampling_params(ask: Ask, *, seeded: bool = False) -> dict[str, Any]:
    """A request's settings in SGLang's words; `seeded`: the engine runs in its repeatable mode."""
    s = ask.sampling
    values: dict[str, Any] = {
        "max_new_tokens": ask.max_tokens, "temperature": s.temperature, "top_p": s.top_p,
        "top_k": s.top_k or -1, "ignore_eos": s.ignore_eos,
    }
    if s.is_truncated:
        values["top_k"] = min(s.top_k or KEPT, KEPT)
    if s.temperature == 0:
        values |= {"top_k": -1, "top_p": 1.0}
    elif s.top_k == 1:
        # top_k 1 is greedy to SGLang, and then its log-probs are sometimes of temperature 1
        values |= {"top_k": 2, "top_p": ONE}
    if seeded:
        # without one this mode takes the same seed for every request
        values["sampling_seed"] = s.seed if s.seed is not None else secrets.randbits(31)
    if ask.stop_ids and not s.ignore_eos:
        values["stop_token_ids"] = list(ask.stop_ids)
    return values


def read_part(out: dict[str, Any], start: int, sampling: Sampling) -> Part:
    """Return the tokens from `start` on of a cumulative answer, each with all its numbers."""
    meta, finish = out["meta_info"], out["meta_info"].get("finish_reason")
    columns = {"output_ids": out["output_ids"],
               "output_token_logprobs": meta.get("output_token_logprobs")}
    if sampling.logprobs_k:
        columns["output_top_logprobs"] = meta.get("output_top_logprobs")
    if sampling.is_truncated:
        columns |= {name: meta.get(name) for name in CUT}
    sizes = {name: len(rows or ()) for name, rows in columns.items()}
    stop = min(sizes.values())  # the lists grow while they are read; the last answer is whole
    reason = (finish or {}).get("type", "")
    if reason in ("stop", "length") and len(set(sizes.values())) > 1:
        raise EngineError("an answer of the engine is not whole", found=str(sizes))
    rows = {name: column[start:stop] for name, column in columns.items() if column}
    arrays = _arrays(rows, start, sampling) if stop > start else {"ids": np.empty(0, np.int32)}
    note = str((finish or {}).get("message") or "")
    return Part(arrays, reason, int(meta.get("cached_tokens") or 0), note)


def _arrays(rows: dict[str, Any], start: int, sampling: Sampling) -> dict[str, np.ndarray]:
    ids = np.array(rows["output_ids"], np.int32)
    entries = rows["output_token_logprobs"]
    if [e[1] for e in entries] != ids.tolist():
        raise EngineError("the engine's log-probs are those of other tokens",
                          found=f"{[e[1] for e in entries]} for {ids.tolist()}")
    topk_ids, topk_logps = read_topk(rows.get("output_top_logprobs"), len(ids), start)
    arrays = {"ids": ids, "logps": numbers([e[0] for e in entries], start),
              "topk_ids": topk_ids, "topk_logps": topk_logps}
    if sampling.is_truncated:
        kept = [np.array(k, np.int32) for k in rows[CUT[0]]]
        arrays["sampling_logps"] = numbers(rows[CUT[1]], start)
        arrays["kept_ids"] = np.concatenate(kept)
        arrays["kept_counts"] = np.array([len(k) for k in kept], np.int32)
    return arrays


def read_topk(rows: Any, num: int, start: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of (log-prob, id, text), best first -> ids, log-probs [n, K]; ties to the lowest id."""
    if not rows:
        return np.empty((num, 0), np.int32), np.empty((num, 0), np.float32)
    if len({len(row or ()) for row in rows}) > 1:
        raise EngineError("the engine's top-k has rows of different lengths")
    ids = np.array([[e[1] for e in row] for row in rows], np.int32)
    logps = numbers([e[0] for row in rows for e in row], start, len(rows[0])).reshape(ids.shape)
    order = np.lexsort((ids, -logps))
    return np.take_along_axis(ids, order, 1), np.take_along_axis(logps, order, 1)


def numbers(values: Sequence[float | None], start: int, width: int = 1) -> np.ndarray:
    """Log-probs as float32; one that is null, not a number or infinite makes the answer useless."""
    found = np.array(values, np.float64)  # a None becomes a nan
    wrong = np.flatnonzero(~(np.isfinite(found) & (found > LEAST)))
    if len(wrong):
        at = int(wrong[0])
        raise EngineError("the engine's answer has a log-prob that is no number",
                          found=f"{values[at]!r} at token {start + at // width}")
    return found.astype(np.float32)


class SglangEngine:
    """See `engine.Engine`. Made in the main thread, driven by one event loop."""

    def __init__(self, config: RunConfig, model_dir: Path) -> None:
        check_version()
        import torch

        on_gpu = torch.cuda.is_available() and config.worker.device != "cpu"
        if not on_gpu:
            os.environ["TORCHDYNAMO_DISABLE"] = "1"  # the plugin's stand-ins break its graphs
        from sglang.srt.entrypoints.engine import Engine
        from sglang.srt.managers import io_struct
        from sglang.srt.utils.hf_transformers.common import get_context_length, get_hf_text_config
        from sglang.srt.utils.hf_transformers.config import get_config

        self._io = io_struct
        hf = get_config(str(model_dir), trust_remote_code=False)
        longest = get_context_length(get_hf_text_config(hf))
        values = arguments(config, model_dir, longest, on_gpu=on_gpu, shim=has_shim())
        if config.sglang.weights == "group":
            scheduler = partial(run_scheduler, config.sglang.group_s)
            Engine = type("Engine", (Engine,), {
                "run_scheduler_process_func": staticmethod(scheduler)})
        self._engine = Engine(**values)
        self._manager = self._engine.tokenizer_manager
        self.patience_s = config.sglang.stall_s
        self.vocab_size = int(self._manager.model_config.vocab_size)
        self.context = int(values["context_length"]) - MARGIN
        self.has_adapters = bool(config.lora.rank)
        self.dtype = str(values["dtype"])
        self.device = "cuda" if on_gpu else "cpu"
        self.backend = "nccl" if on_gpu else "gloo"
        self.num_ranks = int(values.get("tp_size", 1))
        self._on_gpu = on_gpu
        self._takes_tensors = config.sglang.weights == "tensors"
        self._seeded = bool(config.sglang.arguments.get(SEEDED))

    async def generate(self, ask: Ask) -> AsyncIterator[Part]:
        start = 0
        request = self._io.GenerateReqInput(
            rid=ask.rid, input_ids=list(ask.ids),
            sampling_params=sampling_params(ask, seeded=self._seeded),
            return_logprob=True, top_logprobs_num=ask.sampling.logprobs_k, stream=True,
            return_sampling_mask=ask.sampling.is_truncated, lora_path=ask.adapter,
        )
        async for out in self._answers(request):
            part = read_part(out, start, ask.sampling)
            start += len(part.arrays["ids"])
            yield part
            if part.finish:
                return
        raise EngineError("the engine ended an answer without a reason")

    async def score(
        self, rid: str, ids: Sequence[int], topk: int, adapter: str | None, start: int = 0
    ) -> Scores:
        request = self._io.GenerateReqInput(
            rid=rid, input_ids=list(ids), return_logprob=True, logprob_start_len=start,
            sampling_params={"max_new_tokens": 0, "temperature": 0.0}, top_logprobs_num=topk,
            lora_path=adapter,
        )
        async for out in self._answers(request):
            return read_scores(out, ids[start:], topk)
        raise EngineError("the engine ended a score without an answer")

    async def _answers(self, request: Any) -> AsyncIterator[dict[str, Any]]:
        try:
            async for out in self._manager.generate_request(request, None):
                yield out
        except Exception as error:  # so it refuses a request: ValueError, HTTPException, others
            said = str(getattr(error, "detail", "") or error)
            raise EngineError("the engine refuses the request", found=said) from error

    def abort(self, rid: str) -> None:
        self._manager.abort_request(rid=rid)

    async def load_adapter(self, name: str, folder: Path) -> None:
        done = await self._call(self._manager.load_lora_adapter(
            self._io.LoadLoRAAdapterReqInput(lora_name=name, lora_path=str(folder))))
        if not done.success:
            raise VersionError("the engine does not take the adapter", found=done.error_message)

    async def unload_adapter(self, name: str) -> None:
        done = await self._call(self._manager.unload_lora_adapter(
            self._io.UnloadLoRAAdapterReqInput(lora_name=name)))
        if not done.success:
            raise EngineLost("the engine does not let an adapter go", found=done.error_message)

    async def load_weights(self, folder: Path) -> None:
        await self._rest()
        await self._take(self._manager.update_weights_from_disk(
            self._io.UpdateWeightFromDiskReqInput(model_path=str(folder), flush_cache=True)))

    async def _rest(self) -> None:
        # its answers come before it has put the request away, and with one inside it changes the
        # weights, keeps the old cache and calls that a failure
        flushed = await self._call(self._manager.flush_cache(timeout_s=self.patience_s))
        if not flushed.success:
            raise EngineLost("the engine does not come to rest", found=str(flushed))

    async def _take(self, work: Awaitable[Any]) -> None:
        done = await self._call(work)
        if not done[0]:
            raise VersionError("the engine does not take the weights", found=str(done[1]))

    async def join(self, offer: Offer) -> None:
        done = await self._call(self._manager.init_weights_update_group(
            self._io.InitWeightsUpdateGroupReqInput(
                master_address=offer.host, master_port=offer.port, rank_offset=1,
                world_size=offer.world, group_name=offer.name, backend=self.backend)))
        if not done[0]:
            raise VersionError("the engine does not get into the trainer's group",
                               found=str(done[1]))

    async def receive(self, offer: Offer, send: Callable[[int], Awaitable[None]]) -> None:
        why = await self._update([partial(self._receive_after, send, offer, index)
                                  for index in range(len(offer.buckets))])
        await self._call(self._manager.destroy_weights_update_group(
            self._io.DestroyWeightsUpdateGroupReqInput(group_name=offer.name)))
        if why is not None:
            raise why

    async def _receive_after(
        self, send: Callable[[int], Awaitable[None]], offer: Offer, index: int
    ) -> None:
        await send(index)
        await self._receive(offer.name, offer.buckets[index],
                            flush=index + 1 == len(offer.buckets))

    async def read(self, files: Sequence[Path]) -> list[Any] | None:
        return await asyncio.to_thread(shared_buckets, files) if self._takes_tensors else None

    async def place(self, read: list[Any]) -> None:
        why = await self._update([partial(self._place, bucket, flush=bucket is read[-1])
                                  for bucket in read])
        if why is not None:
            raise why

    async def _place(self, bucket: Any, *, flush: bool) -> None:
        from sglang.srt.utils import MultiprocessingSerializer

        # where the bucket lies, once for each rank: whoever reads it uses it up
        told = [MultiprocessingSerializer.serialize(
            {"flattened_tensor": bucket.get_flattened_tensor(), "metadata": bucket.get_metadata()}
        ) for _ in range(self.num_ranks)]
        await self._take(self._manager.update_weights_from_tensor(
            self._io.UpdateWeightsFromTensorReqInput(
                serialized_named_tensors=told, load_format="flattened_bucket",
                flush_cache=flush)))

    async def _update(self, steps: Sequence[Callable[[], Awaitable[None]]]) -> VersionError | None:
        """One update in steps. Returns why it failed; then the weights may be mixed."""
        why = None
        try:
            await self._rest()
            await self._take(self._manager.begin_weight_update(
                self._io.BeginWeightUpdateReqInput()))
            for step in steps:
                await step()
        except VersionError as error:
            why = error
        # also after a failure: the session must be over before the old weights are loaded again
        ended = await self._call(self._manager.end_weight_update(
            self._io.EndWeightUpdateReqInput()))
        if why is None and not ended[0]:
            why = VersionError("the engine does not take the weights", found=str(ended[1]))
        return why

    async def _receive(self, group: str, bucket: Bucket, *, flush: bool) -> None:
        names, dtypes, shapes = (list(column) for column in zip(*bucket, strict=True))
        await self._take(self._manager.update_weights_from_distributed(
            self._io.UpdateWeightsFromDistributedReqInput(
                names=names, dtypes=dtypes, shapes=shapes, group_name=group,
                load_format="flattened_bucket", flush_cache=flush)))

    async def checksums(self) -> Checksums:
        if self._on_gpu:
            return {}  # there it answers with another hash, which nobody else can make
        done = await self._call(self._manager.check_weights(
            self._io.CheckWeightsReqInput(action="checksum")))
        if not done[0]:
            raise EngineError("the engine gives no checksums", found=str(done[1]))
        return {name: str(c) for part in done[2] for name, c in part["checksums"].items()}

    async def _call(self, work: Awaitable[Any]) -> Any:
        try:
            return await asyncio.wait_for(work, self.patience_s)
        except TimeoutError as error:
            raise EngineLost("the engine does not change its weights",
                             found=f"no answer in {self.patience_s:g} s") from error

    def close(self) -> None:
        self._engine.shutdown()


def shared_buckets(files: Sequence[Path]) -> list[Any]:
    """These files' tensors in memory that the engine can see, in SGLang's buckets."""
    needs = sum(file.stat().st_size for file in files) + SPARE
    if SHARED.is_dir() and (free := shutil.disk_usage(SHARED).free) < needs:
        raise VersionError(  # who writes there past its end is killed
            "shared memory has no room for the weights", found=f"{free} bytes free in {SHARED}",
            allowed=f"{needs} bytes", do="enlarge it (docker run --shm-size), or set "
            "sglang.weights=folder")
    from safetensors.torch import load_file
    from sglang.srt.weight_sync.tensor_bucket import FlattenedTensorBucket

    held = {name: tensor for file in files for name, tensor in load_file(file).items()}
    made = []
    for entries in buckets.plan(held):
        bucket = FlattenedTensorBucket([(name, held.pop(name)) for name, _, _ in entries])
        bucket.get_flattened_tensor().share_memory_()
        made.append(bucket)
    return made


def read_scores(out: dict[str, Any], ids: Sequence[int], topk: int) -> Scores:
    """The scores of `ids[1:]`; the engine's entry 0 has no number, for nothing comes before it."""
    meta = out["meta_info"]
    if (meta.get("finish_reason") or {}).get("type") == "abort":
        raise EngineError("the engine gave a score up")
    entries = (meta.get("input_token_logprobs") or [])[1:]
    if [e[1] for e in entries] != list(ids[1:]):
        raise EngineError("the engine's scores are those of other tokens",
                          found=f"{len(entries)} scores for {len(ids)} tokens")
    rows = (meta.get("input_top_logprobs") or [])[1:] if topk else None
    if topk and len(rows or ()) != len(entries):
        raise EngineError("the engine's scores lack their top-k")
    topk_ids, topk_logps = read_topk(rows, len(entries), 1)
    return Scores(numbers([e[0] for e in entries], 1), topk_ids, topk_logps)


if __name__ == "__main__":
    from claw.engine.worker import host_process

    host_process.main(SglangEngine)
