"""What a run is: class defaults < TOML file < `a.b=c` overrides.

Owns: the settings, their checks, and the explanations of mistakes.
Does not own: the settings of plugins (each plugin's own model, mounted at `[plugin.NAME]`).
Environment variables are never settings; secrets are named by their variable (`api_key_env`).
"""

import json
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from claw.errors import UsageError, nearest


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class RolloutConfig(Section):
    """How replies are drawn when the request does not say."""

    temperature: float = Field(1.0, ge=0, le=5)
    """softmax temperature; a request may set its own, which is stored with the turn"""
    top_p: float = Field(1.0, gt=0, le=1)
    """smallest set of tokens with this much probability; 1 is off"""
    top_k: int = Field(0, ge=0)
    """0 is off"""
    max_tokens: int = Field(512, ge=1)
    """tokens of a reply; a request may ask for less"""
    logprobs_k: int = Field(4, ge=0, le=64)
    """most likely ids stored with each sampled token"""
    n: int = Field(8, ge=1)
    """attempts at one task (environments with tasks only)"""
    max_turns: int = Field(16, ge=1)
    """policy calls of one episode (environments with tasks only)"""
    max_episode_tokens: int = Field(0, ge=0)
    """tokens sampled in one episode, all its turns together; 0 is unbounded"""
    episode_s: float = Field(3600.0, gt=0)
    """seconds of one episode, waiting included; then it ends and is judged as it stands"""
    max_observation: int = Field(16_000, ge=0)
    """characters of an environment's message; of a longer one head and tail stay; 0 keeps all"""
    retries: int = Field(1, ge=0, le=10)
    """times that an attempt is played again when the infrastructure failed; what the policy itself
    did is never played again"""
    host: bool = True
    """whether this machine plays episodes; false leaves all of it to `claw env host --connect`"""
    parallel: int = Field(8, ge=1, le=1024)
    """episodes that run at once in one runner; each may hold one thread"""


class WorkerConfig(Section):
    """The process that samples tokens."""

    kind: Literal["transformers", "sglang", "scripted"] = "transformers"
    """`sglang` needs an environment of its own (see [sglang]); `scripted` answers by rule and needs
    no weights: for tests of everything around a model"""
    count: int = Field(1, ge=1, le=1024)
    """worker processes"""
    slots: int = Field(16, ge=1)
    """replies sampled at once in one batch; more wait in a bounded queue"""
    queue: int = Field(64, ge=0)
    """requests that may wait for a slot; beyond it clients get 429"""
    context: int = Field(4096, ge=16)
    """longest prompt + reply in tokens; capped by the model's own limit"""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1 or mps"""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """auto: float32 on a CPU, bfloat16 elsewhere"""
    threads: int = Field(0, ge=0)
    """CPU threads; 0 leaves it to torch"""
    deadline_s: float = Field(600.0, gt=0)
    """seconds a request may take before it ends with what it has"""
    cache: str = ""
    """folder for versions that come from a trainer on another host; empty: in the user's cache"""
    cache_gb: float = Field(20.0, gt=0)
    """room for them; the ones that were used longest ago go first"""


class SglangConfig(Section):
    """The SGLang engine of `worker.kind = "sglang"`, in a Python environment of its own."""

    python: str = ""
    """that environment's python; empty: the python that runs the worker"""
    cache_tokens: int = Field(0, ge=0)
    """tokens that the key-value cache holds; 0: what the slots need, up to 16384 on a CPU, and
    SGLang's own choice on a GPU"""
    memory: float = Field(0.0, ge=0, lt=1)
    """share of a GPU's memory for weights and cache; 0 leaves it to SGLang"""
    start_s: float = Field(600.0, gt=0)
    """seconds the engine may take to start"""
    stall_s: float = Field(120.0, gt=0)
    """seconds without a token while requests run, after which the engine counts as hung"""
    weights: Literal["folder", "tensors", "group"] = "folder"
    """how full weights come into the engine: it reads the version's folder, or gets the tensors
    in shared memory, where they were read before requests had to wait, or the trainer sends them
    through a group of torch.distributed (NCCL on a GPU, else gloo): not encrypted"""
    group_s: float = Field(30.0, gt=0, le=600)
    """seconds that one step of a group may take: its making, or one bucket of tensors"""
    arguments: dict[str, Any] = {}
    """more of SGLang's own server arguments, as tp_size = 2; not those that claw sets itself"""


class LoraConfig(Section):
    """Low-rank adapters. Rank 0 trains the full weights."""

    rank: int = Field(16, ge=0)
    """0 trains the full weights"""
    alpha: float = Field(32.0, gt=0)
    """the adapter is scaled by alpha / rank"""
    dropout: float = Field(0.0, ge=0, lt=1)
    """of the adapter, in training only"""
    targets: tuple[str, ...] = (
        "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj",
    )
    """names of the linear layers that get an adapter"""
    quantize: Literal["none", "nf4"] = "none"
    """nf4: the weights below the adapter in 4 bits (QLoRA), in the trainer and in claw's own
    workers alike; needs the package bitsandbytes"""


class TrainConfig(Section):
    """The optimiser step and when it starts."""

    method: str = "hybrid"
    """grpo, opd, opd-sampled, hybrid, combined, or a loss that a plugin registers"""
    batch_size: int = Field(16, ge=1)
    """samples of a step"""
    max_wait_s: float = Field(300.0, ge=0)
    """a step also starts when this long has passed since the oldest waiting sample"""
    lr: float = Field(1e-5, gt=0)
    """learning rate of AdamW"""
    warmup_steps: int = Field(0, ge=0)
    """steps over which the learning rate rises from 0"""
    decay_steps: int = Field(0, ge=0)
    """steps over which it falls linearly to lr_floor * lr; 0 keeps it constant"""
    lr_floor: float = Field(0.0, ge=0, le=1)
    """share of lr that is left after decay_steps"""
    weight_decay: float = Field(0.0, ge=0)
    """of AdamW"""
    betas: tuple[float, float] = (0.9, 0.98)
    """of AdamW"""
    max_grad_norm: float = Field(1.0, gt=0)
    """gradients are scaled down to this norm"""
    micro_tokens: int = Field(4096, ge=64)
    """tokens of one forward pass; samples of a step are split into such groups"""
    max_steps: int = Field(0, ge=0)
    """stop training after this many steps; a run that serves nobody then ends; 0 never stops"""
    keep_versions: int = Field(8, ge=2)
    """newest versions whose weights stay on disk; the first one always stays"""
    ranks: int = Field(1, ge=1, le=1024)
    """processes on this machine that train together, each with a part of the weights and of every
    batch: one for each GPU, or on the CPU (docs/ranks.md)"""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1 or mps"""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """auto: float32 on a CPU, bfloat16 with float32 master weights elsewhere"""
    threads: int = Field(0, ge=0)
    """CPU threads; 0 leaves it to torch"""
    packing: bool = False
    """the sequences of a forward pass lie in one row, without padding, and none sees another"""
    gradient_checkpointing: bool = False
    """recompute activations in the backward pass: less memory, more time; on a CPU what is freed
    goes back to the machine at once too"""


class LossConfig(Section):
    """The hybrid loss: w_rl * GRPO + w_opd * OPD (+ KL)."""

    w_rl: float = Field(1.0, ge=0)
    """weight of the GRPO term"""
    w_opd: float = Field(1.0, ge=0)
    """weight of the OPD term"""
    clip_low: float = Field(0.2, gt=0, lt=1)
    """the ratio is clipped below 1 - clip_low"""
    clip_high: float = Field(0.28, gt=0)
    """the ratio is clipped above 1 + clip_high"""
    kl_coef: float = Field(0.0, ge=0)
    """k3 KL to the first weights; costs nothing at 0"""
    entropy_coef: float = Field(0.0, ge=0)
    """bonus for the entropy of trained tokens"""
    k: int = Field(4, ge=1, le=64)
    """ids of the top-k distillation"""
    subset: Literal["student", "teacher", "overlap"] = "student"
    """whose top-k ids carry the distillation"""
    gap_clip: float = Field(1.0, ge=0)
    """C: bound of the teacher's advantage per id; 0 is unbounded"""
    gap_weight: Literal["student", "teacher"] = "student"
    """whose probabilities weigh the ids of the subset; `teacher` teaches what is yet unlikely"""
    hint_choice: Literal["sequence", "token", "shortest", "random"] = "sequence"
    """which hint teaches: best overlap per reply or per token, the shortest, or any"""
    teacher: Literal["current", "base", "ema"] = "current"
    """whose weights see the hint"""
    ema_decay: float = Field(0.99, gt=0, lt=1)
    """of teacher ema, per step"""
    baseline: Literal["none", "batch"] = "none"
    """`batch` subtracts the mean advantage of the step's samples"""
    normalise: Literal["sample-mean", "batch-mean", "token-mean"] = "sample-mean"
    """how token losses become one number; `batch-mean` learns less from few hints"""
    truncated: Literal["mask", "keep"] = "mask"
    """replies cut at max_tokens: `mask` drops their GRPO term, `keep` trains them like others"""


class IsConfig(Section):
    """Importance sampling of the GRPO term."""

    mode: Literal["behaviour", "proximal"] = "behaviour"
    """ratio against the worker's log-probs, or against log-probs recomputed at the step's start"""
    cap: float = Field(2.0, gt=0)
    """proximal only: largest weight min(pi_prox / pi_behaviour, cap)"""


class AsyncConfig(Section):
    """How far serving may run ahead of training."""

    max_staleness: int = Field(8, ge=0)
    """versions between a token and the weights that train it"""
    stale: Literal["drop", "mask", "pace"] = "drop"
    """what keeps that bound: `drop` leaves out samples with an older token, `mask` only those
    tokens; `pace` begins no new episode while too many samples are ahead of it, and drops what
    still grew too old (conversations of people are never held up)"""


class JudgeConfig(Section):
    """Who judges a turn from its next state."""

    kind: str = "rules"
    """rules, model, none, or a judge that a plugin brings"""
    votes: int = Field(3, ge=1, le=32)
    """answers asked of a model judge; majority decides, a tie abstains"""
    max_hints: int = Field(3, ge=0, le=16)
    """hint candidates of a turn; the best overlap is chosen in training"""
    base_url: str = ""
    """OpenAI-compatible endpoint of a model judge; empty asks claw's own workers"""
    model: str = ""
    """name of the judge model at base_url"""
    api_key_env: str = ""
    """name of the environment variable that holds the endpoint's key"""
    temperature: float = Field(0.6, ge=0)
    """of a model judge"""
    max_tokens: int = Field(1024, ge=1)
    """of a model judge's answer"""
    deadline_s: float = Field(120.0, gt=0)
    """after which a turn is skipped as judge_failed"""
    retries: int = Field(1, ge=0, le=5)
    """asks again when an answer cannot be read"""
    parallel: int = Field(8, ge=1)
    """turns judged at once"""
    hindsight: bool = False
    """when a conversation has ended, what the whole of it shows that the person wants becomes a
    hint for those of its turns that have none"""


class CreditConfig(Section):
    """From signals to advantages."""

    kind: str = "vote"
    """vote: the majority vote itself; outcome: alpha * outcome + (1 - alpha) * process, per group;
    step: the same standardised per step index; or one that a plugin registers"""
    alpha: float = Field(0.5, ge=0, le=1)
    """weight of the outcome against the process reward"""
    baseline: float = 0.0
    """subtracted from a vote, and from the value of a group of one"""


class GuardConfig(Section):
    """What is held back for a person to look at before it teaches, and how much of a step may come
    from one place (docs/security.md)."""

    rules: tuple[Literal["bulk", "contradictory", "injection", "secret", "unicode", "trigger"],
                 ...] = ("bulk", "contradictory", "injection", "secret", "unicode", "trigger")
    """what holds a turn; a name that is left out holds none, an empty list holds nothing"""
    flood: int = Field(30, ge=0)
    """bulk: about more turns than this, the same words of one owner within window_s are held; as
    fast as nobody types, while the same wish in many conversations is what people say; 0 is off"""
    window_s: float = Field(60.0, gt=0)
    """bulk: seconds"""
    changes: int = Field(1, ge=0)
    """contradictory: times that a person may turn the thumb on one reply round; a slip is one"""
    conversation_share: float = Field(0.5, gt=0, le=1)
    """of train.batch_size: most samples of one conversation in a step while others wait too; what
    is over waits for the next one; 1 is off"""
    hint_share: float = Field(0.5, gt=0, le=1)
    """of train.batch_size: most samples with the same hint in a step while others wait too; 1 is
    off"""


class ServeConfig(Section):
    """The HTTP side of plugins that bring an app."""

    host: str = "127.0.0.1"
    """a public address needs serve.api_key_env, and serve.tls_cert or serve.plain_http"""
    port: int = Field(8411, ge=0, le=65535)
    """0 takes a free port"""
    api_key_env: str = ""
    """name of the environment variable with the key; empty: a key made for the run"""
    tls_cert: str = ""
    """file with the certificate and its chain (PEM): the endpoint speaks https"""
    tls_key: str = ""
    """file with the certificate's private key"""
    plain_http: bool = False
    """a public address without TLS: whoever is on the way reads keys and conversations, unless a
    proxy in front of the endpoint speaks https"""
    model_name: str = "claw-policy"
    """the model name that clients send"""
    max_body_mb: int = Field(64, ge=1, le=1024)
    """largest request body"""
    session_idle_s: float = Field(1800.0, gt=0)
    """a conversation that is silent for so long has ended"""
    tool_calls: Literal["auto", "none", "hermes", "llama", "pythonic", "qwen3-coder", "glm",
                        "mistral", "deepseek"] = "auto"
    """how the model writes tool calls; auto: as its template says (docs/clients.md)"""
    learn_subagents: bool = False
    """learn from the turns of sub-agents, whose request the policy itself wrote, as from a
    person's; otherwise they are side turns: answered, shown, and never trained"""

    @property
    def is_public(self) -> bool:
        """Whether other machines reach the endpoint."""
        return not (self.host in ("localhost", "::1") or self.host.startswith("127."))


class GateConfig(Section):
    """Checks that a version passes before it serves."""

    enabled: bool = True
    """whether a version is checked before it serves"""
    max_rise: float = Field(0.5, gt=0)
    """nats per token: largest rise of the loss on held-out text against the first weights"""
    max_drift: float = Field(1.0, ge=0)
    """nats per token: largest divergence from the first weights on held-out text, KL(now || first)
    over the whole vocabulary; beyond it nothing more is learned until a rollback; 0 is off"""
    max_step_drift: float = Field(0.5, ge=0)
    """the same between two versions, of one step; 0 is off and saves a pass over the texts"""
    canary_tolerance: float = Field(0.05, gt=0)
    """largest log-prob difference between trainer and worker on fixed token sequences"""


def _questions(value: Any) -> Any:
    if value == "auto" or (type(value) is int and 0 <= value <= 32):
        return value
    raise ValueError(f"auto, or a whole number from 0 to 32 (got {_brief(value)})")


class BetterConfig(Section):
    """Old and new version answer the same questions after each step."""

    questions: Annotated[int | Literal["auto"], BeforeValidator(_questions)] = "auto"
    """half of them fixed, half the person's own newest turns; 0 is off. auto: 8 where every worker
    has a GPU, else 0, as a CPU has better use for the seconds that the answers take"""
    max_tokens: int = Field(96, ge=8)
    """of such an answer"""
    max_worse: float = Field(0.5, ge=0, le=1)
    """share of worse answers beyond which a version is rolled back by itself; 1 never does"""
    deadline_s: float = Field(120.0, gt=0)
    """of one answer"""


class WireConfig(Section):
    """Sockets between the processes."""

    address: str = ""
    """empty: ipc:// in a private folder; tcp://HOST:PORT for other machines, needs keys and the
    ports PORT to PORT + 4: workers, runners, trainer, versions, weights"""
    keys: str = ""
    """folder made by `claw keys`"""
    heartbeat_s: float = Field(2.0, gt=0)
    """between signs of life"""
    dead_after_s: float = Field(60.0, gt=0)
    """silence after which a peer counts as gone; a process of the run that is stopped, or whose
    loop does not turn, for so long is killed and started again"""
    stuck_after_s: float = Field(1800.0, gt=0)
    """how long one forward, micro-batch or load of weights may take; a worker or trainer that makes
    no progress for longer is killed and started again"""


class ClusterConfig(Section):
    """Workers and environments on the nodes of a cluster (docs/cluster.md)."""

    kind: Literal["none", "ray"] = "none"
    """`ray` places rollout workers and runners on its nodes; needs the extra `ray`, wire.address
    and wire.keys; the command line's --cluster"""
    address: str = ""
    """the cluster's head, HOST:6379; empty: the cluster that this machine is a node of"""
    host: str = ""
    """where the nodes reach this machine; empty: the host of wire.address, and where that is
    0.0.0.0 the address by which Ray knows this machine"""
    worker_resources: dict[str, float] = {"CPU": 1.0}
    """what Ray keeps free for one worker: CPU, GPU, memory (bytes), or a name that nodes were
    started with"""
    runner_resources: dict[str, float] = {"CPU": 1.0}
    """likewise for one runner"""
    runners: int = Field(1, ge=0, le=256)
    """runners that are placed; 0: one, on this machine. A plugin with an app stays here always"""
    place_s: float = Field(120.0, gt=0)
    """seconds within which a place must be found; a run ends then, or, if one was lost, goes on
    without it and asks again"""
    start_s: float = Field(600.0, gt=0)
    """seconds that finding the model on a node may take"""


class JournalConfig(Section):
    """The file that holds all that was said (docs/security.md)."""

    key_file: str = ""
    """encrypts the journal: file with the key, made by `claw keys FOLDER --journal`; needs the
    extra `encrypted`"""

    @field_validator("key_file")
    @classmethod
    def _absolute(cls, value: str) -> str:
        """Commands read a run from any folder."""
        return str(Path(value).expanduser().absolute()) if value else ""


class TrackConfig(Section):
    """Metrics. JSONL in the run folder always."""

    to: tuple[Literal["wandb", "tensorboard", "trackio"], ...] = ()
    """trackers that must be installed; empty keeps everything on this machine"""
    project: str = "claw"
    """project name at the tracker"""


class RunConfig(Section):
    """A run, as `claw config show` prints it."""

    model: str = "smollm2-135m"
    """a name that claw knows, a local folder, or a hub name"""
    plugin_name: str = ""
    """the environment; the command line's --plugin"""
    seed: int = 0
    """of sampling without a seed of its own, adapters and shuffles"""
    runs: str = "runs"
    """folder of run folders"""
    name: str = ""
    """of the run folder; empty: plugin and time"""
    rollout: RolloutConfig = RolloutConfig()
    worker: WorkerConfig = WorkerConfig()
    sglang: SglangConfig = SglangConfig()
    lora: LoraConfig = LoraConfig()
    train: TrainConfig = TrainConfig()
    loss: LossConfig = LossConfig()
    is_: IsConfig = Field(IsConfig(), alias="is")
    async_: AsyncConfig = Field(AsyncConfig(), alias="async")
    judge: JudgeConfig = JudgeConfig()
    credit: CreditConfig = CreditConfig()
    guard: GuardConfig = GuardConfig()
    serve: ServeConfig = ServeConfig()
    gate: GateConfig = GateConfig()
    better: BetterConfig = BetterConfig()
    wire: WireConfig = WireConfig()
    cluster: ClusterConfig = ClusterConfig()
    journal: JournalConfig = JournalConfig()
    track: TrackConfig = TrackConfig()
    plugin: dict[str, dict[str, Any]] = {}
    """settings of plugins, checked by each plugin's own model"""

    @model_validator(mode="after")
    def _can_be_honoured(self) -> "RunConfig":
        """A setting that would be silently ignored is an error at start."""
        for problem in conflicts(self):
            raise ValueError(problem)
        return self


METHODS = ("grpo", "opd", "opd-sampled", "hybrid", "combined")
CREDITS = ("vote", "outcome", "step")
JUDGES = ("rules", "model", "none")
"""built-in names; a plugin may bring more"""


def conflicts(c: RunConfig) -> list[str]:
    """Return what the settings ask for together and cannot get."""
    found = []
    is_grpo_only = c.train.method == "grpo"
    if c.loss.w_rl == 0 and c.loss.w_opd == 0:
        found.append("loss.w_rl and loss.w_opd are both 0: nothing would be trained")
    if c.train.lr_floor > 0 and c.train.decay_steps == 0:
        found.append("train.lr_floor has no effect without train.decay_steps")
    if c.train.ranks > 1 and c.train.device not in ("auto", "cpu", "cuda"):
        found.append(f"train.device = {c.train.device} is one device, and train.ranks is "
                     f"{c.train.ranks}; set it to auto, cpu or cuda")
    if c.loss.teacher == "ema" and is_grpo_only:
        found.append("loss.teacher has no effect: train.method grpo asks no teacher")
    if c.is_.mode == "behaviour" and c.is_.cap != IsConfig().cap:
        found.append("is.cap has no effect in mode behaviour; set is.mode = \"proximal\"")
    if c.judge.base_url and c.judge.kind != "model":
        found.append(f"judge.base_url has no effect: judge.kind is {c.judge.kind!r}")
    if c.judge.hindsight and c.judge.kind not in ("rules", "model"):
        found.append(f"judge.hindsight has no effect: judge.kind is {c.judge.kind!r}")
    if c.judge.hindsight and (is_grpo_only or not c.judge.max_hints or not c.loss.w_opd):
        found.append("judge.hindsight has no effect: nothing learns from hints")
    if bool(c.serve.tls_cert) != bool(c.serve.tls_key):
        found.append("serve.tls_cert and serve.tls_key are set together or not at all")
    if c.serve.is_public and not c.serve.tls_cert and not c.serve.plain_http:
        found.append(f"serve.host = {c.serve.host} is public: keys and conversations would travel "
                     "in the open; set serve.tls_cert and serve.tls_key, or, behind a proxy that "
                     "speaks https, serve.plain_http = true")
    if c.serve.plain_http and (c.serve.tls_cert or not c.serve.is_public):
        found.append("serve.plain_http has no effect: the endpoint "
                     + ("has TLS" if c.serve.tls_cert else f"is not public ({c.serve.host})"))
    if not c.better.questions and c.better != BetterConfig(questions=0):
        found.append("[better] has no effect: better.questions is 0")
    default = GuardConfig()
    for rule, names in (("bulk", ("flood", "window_s")), ("contradictory", ("changes",))):
        found += [f"guard.{name} has no effect: guard.rules has no {rule!r}" for name in names
                  if rule not in c.guard.rules and getattr(c.guard, name) != getattr(default, name)]
    if not c.gate.enabled:
        found += [f"gate.{name} has no effect: gate.enabled is false"
                  for name in ("max_drift", "max_step_drift")
                  if getattr(c.gate, name) != getattr(GateConfig(), name)]
    if c.guard.flood == 0 and c.guard.window_s != default.window_s:
        found.append("guard.window_s has no effect: guard.flood is 0")
    if c.rollout.max_tokens >= c.worker.context:
        found.append("rollout.max_tokens leaves no room for a prompt in worker.context")
    if c.sglang != SglangConfig() and c.worker.kind != "sglang":
        found.append(f"[sglang] has no effect: worker.kind is {c.worker.kind!r}")
    if c.sglang.weights != "folder" and c.lora.rank:
        found.append(f"sglang.weights = {c.sglang.weights} has no effect on adapters; set "
                     "lora.rank = 0")
    if c.sglang.weights != "group" and c.sglang.group_s != SglangConfig().group_s:
        found.append(f"sglang.group_s has no effect: sglang.weights is {c.sglang.weights!r}")
    if 3 * c.sglang.group_s > c.sglang.stall_s and c.sglang.weights == "group":
        found.append("sglang.group_s must be at most a third of sglang.stall_s, within which the "
                     "engine answers")
    if c.lora.quantize != "none" and not c.lora.rank:
        found.append("lora.quantize needs an adapter: set lora.rank")
    if c.lora.quantize != "none" and c.train.ranks > 1:
        found.append("lora.quantize cannot be split over train.ranks; set one of them back")
    if c.lora.quantize != "none" and c.worker.kind == "sglang":
        found.append("lora.quantize has no effect on worker.kind sglang, whose base weights would "
                     "differ from the trainer's; use worker.kind = \"transformers\"")
    found += _cluster_conflicts(c)
    if c.loss.subset != "student" and c.train.method in ("grpo", "opd-sampled", "combined"):
        found.append(f"loss.subset has no effect: train.method {c.train.method} uses no top-k")
    if c.loss.gap_weight != "student" and c.train.method in ("grpo", "opd-sampled", "combined"):
        found.append(f"loss.gap_weight has no effect: train.method {c.train.method} uses no top-k")
    return found


def _cluster_conflicts(c: RunConfig) -> list[str]:
    if c.cluster.kind == "none":
        return ([] if c.cluster == ClusterConfig() else
                ["[cluster] has no effect: cluster.kind is \"none\""])
    found = []
    if not c.wire.address.startswith("tcp://") or not c.wire.keys:
        found.append("cluster.kind = \"ray\" needs wire.address = tcp://HOST:PORT, which the nodes "
                     "reach, and wire.keys (claw keys FOLDER)")
    if c.cluster.address.startswith("ray://"):
        found.append("cluster.address is the head's HOST:PORT: this machine must be a node itself "
                     "(ray start --address=HEAD:6379 --num-cpus=0)")
    for name in ("worker_resources", "runner_resources"):
        if any(not 0 <= value < 1e15 for value in getattr(c.cluster, name).values()):
            found.append(f"cluster.{name} are numbers from 0 on")
    if not c.rollout.host and c.cluster.runners != ClusterConfig().runners:
        found.append("cluster.runners has no effect: rollout.host is false")
    return found


def load(
    path: Path | None = None, overrides: tuple[str, ...] = (), base: dict[str, Any] | None = None
) -> RunConfig:
    """Read a TOML file, apply `a.b=c` overrides, and return the checked run.

    `base` holds recommended values below both (a plugin's or a model's preset).
    """
    values = merged(base or {}, _read(path) if path else {})
    for override in overrides:
        _apply(values, override)
    return parse(values)


def parse(values: dict[str, Any]) -> RunConfig:
    """Check plain values; a mistake becomes a UsageError in words."""
    try:
        run = RunConfig.model_validate(values)
        # the processes of a run are given its settings as JSON
        json.dumps(run.model_dump(by_alias=True), allow_nan=False, ensure_ascii=False).encode()
    except ValidationError as error:
        raise UsageError("the settings are not valid", found=explain(error)) from error
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(
            "a setting is no JSON value", found=str(error)[:300],
            allowed="text, finite numbers, true, false, lists and tables of them",
        ) from error
    return run


def resolved(config: RunConfig) -> dict[str, Any]:
    """Return the run as plain JSON values, every default filled in."""
    values: dict[str, Any] = json.loads(config.model_dump_json(by_alias=True))
    return values


def explain(error: ValidationError, model: type[BaseModel] = RunConfig, prefix: str = "") -> str:
    """Turn pydantic's findings into lines: `train.lrr: no such setting; did you mean 'lr'?`."""
    lines = []
    for item in error.errors():
        where = prefix + ".".join(str(part) for part in item["loc"])
        if item["type"] == "extra_forbidden":
            known = _known(model, item["loc"][:-1])
            hint = nearest(str(item["loc"][-1]), known)
            lines.append(f"{where}: no such setting; {hint or 'known: ' + ', '.join(known)}")
        else:
            got = "" if item["type"] == "value_error" else f" (got {_brief(item['input'])})"
            said = item["msg"].removeprefix("Value error, ")
            lines.append(f"{where}: {said}{got}" if where else said)
    return "\n         ".join(lines)


def _brief(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 200 else f"{shown[:200]}..."


def reference() -> str:
    """Return `docs/configuration.md`: every setting, its default and its meaning."""
    lines = ["# Settings", "", "TOML file < `a.b=c` on the command line. `claw config show` prints",
             "the resolved run. `[plugin.NAME]` holds a plugin's own settings.", ""]
    for name, f in RunConfig.model_fields.items():
        if isinstance(f.default, Section):
            said = (type(f.default).__doc__ or "").strip()
            lines += ["", f"## [{f.alias or name}]", "", said, ""]
            lines += ["| setting | default | meaning |", "|---|---|---|"]
            lines += [_row(n, g) for n, g in type(f.default).model_fields.items()]
        else:
            if name == "model":
                lines += ["| setting | default | meaning |", "|---|---|---|"]
            if name != "plugin":
                lines.append(_row(name, f))
    return "\n".join(lines) + "\n"


def _row(name: str, f: Any) -> str:
    meaning = " ".join((f.description or "").split()).replace("|", "\\|")
    return f"| `{f.alias or name}` | `{json.dumps(f.default)}` | {meaning} |"


def _known(model: type[BaseModel], loc: tuple[int | str, ...]) -> list[str]:
    for part in loc:
        f = next(f for n, f in model.model_fields.items() if part in (n, f.alias))
        if isinstance(f.annotation, type) and issubclass(f.annotation, BaseModel):
            model = f.annotation
    return [f.alias or n for n, f in model.model_fields.items()]


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError("no such settings file", found=str(path)) from None
    except OSError as error:
        raise UsageError("the settings file cannot be read", found=str(error)) from error
    except (ValueError, RecursionError) as error:  # of numbers that are too long, too
        raise UsageError("the settings file is not TOML", found=f"{path}: {error}"[:500]) from error


def _apply(values: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    if not equals or not key.strip():
        raise UsageError("not an override", found=override, allowed="a.b=value")
    *path, last = key.strip().split(".")
    for part in path:
        inner = values.setdefault(part, {})
        if not isinstance(inner, dict):
            raise UsageError("an override goes through a value", found=override)
        values = inner
    values[last] = _value(text)


def _value(text: str) -> Any:
    """Read `text` as a TOML value; what is no TOML value is a plain word."""
    try:
        return tomllib.loads(f"x = {text}")["x"]
    except (ValueError, RecursionError):
        return text


def merged(*layers: dict[str, Any]) -> dict[str, Any]:
    """Plain values of several layers; a later one wins."""
    values: dict[str, Any] = {}
    for layer in layers:
        _merge(values, layer)
    return values


def _merge(into: dict[str, Any], layer: dict[str, Any]) -> None:
    for key, value in layer.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = dict(value) if isinstance(value, dict) else value
