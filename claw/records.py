"""The nine nouns. Frozen records; numpy and the standard library only.

Token ids and log-probs are stored as the worker sent them; text is a view of them.
Letters: P prompt tokens, R reply tokens, L = P + R, K top-k entries, N hint candidates.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np  # named in annotations only: a plugin author does not wait for it

Message = dict[str, Any]
"""One chat message in OpenAI's shape: role, content, and tool_calls or tool_call_id."""

DEFAULT_OWNER = "default"


def new_id(prefix: str) -> str:
    """Return a fresh id such as `turn_0f3a...`: sortable by time to the second, unguessable."""
    return f"{prefix}_{int(time.time()):08x}{secrets.token_hex(8)}"


@dataclass(frozen=True, slots=True)
class Task:
    """One thing to attempt. `answer` is private: the policy never sees it."""

    id: str
    messages: tuple[Message, ...]
    tools: tuple[dict[str, Any], ...] = ()
    metadata: dict[str, Any] = field(default_factory=dict)
    answer: Any = None


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a reply is drawn. temperature 0 is greedy; top_p 1 and top_k 0 are off."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_tokens: int = 512
    """tokens of the reply"""
    seed: int | None = None
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    logprobs_k: int = 4
    """how many most likely ids, with log-probs, come back for each sampled token"""

    @property
    def is_truncated(self) -> bool:
        """Whether tokens are drawn from less than the whole softmax (top-p or top-k)."""
        return self.temperature > 0 and (self.top_p < 1.0 or self.top_k > 0)


class TurnState(StrEnum):
    """Exactly one per turn. `skipped` and `trained` carry their detail in `Turn.reason`."""

    OPEN = "open"
    """the reply is being made"""
    WAITING = "waiting"
    """no next state yet"""
    JUDGING = "judging"
    QUEUED = "queued"
    """its sample waits for a step, or is leased by the trainer"""
    SKIPPED = "skipped"
    TRAINED = "trained"
    FORGOTTEN = "forgotten"


class TurnKind(StrEnum):
    MAIN = "main"
    """a person's or a task's own turn: captured, judged, trained"""
    SIDE = "side"
    """a helper call (title, heartbeat, measurement): served, never trained"""


class FinishReason(StrEnum):
    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"
    CANCELLED = "cancelled"
    ERROR = "error"


@dataclass(frozen=True, slots=True, eq=False)
class Completion:
    """What a worker sampled for one prompt. All arrays have length R (or R rows)."""

    ids: np.ndarray
    """int32 [R] sampled token ids, the end-of-turn token included when it was sampled"""
    logps: np.ndarray
    """float32 [R] log softmax(logits / temperature) of each sampled id, before top-p/top-k"""
    topk_ids: np.ndarray
    """int32 [R, K] most likely ids, best first, ties to the lowest id"""
    topk_logps: np.ndarray
    """float32 [R, K]"""
    versions: np.ndarray
    """int32 [R] number of the weights that sampled each token"""
    finish_reason: FinishReason
    sampling_logps: np.ndarray | None = None
    """float32 [R] log-probs after truncation and renormalising, only under top-p/top-k"""
    kept_ids: np.ndarray | None = None
    """int32 flat: ids that truncation kept, all positions one after the other"""
    kept_counts: np.ndarray | None = None
    """int32 [R]: how many of `kept_ids` belong to each position"""


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """One policy call, and the next state that followed."""

    id: str
    trace_id: str
    index: int
    """0 for the first turn of its trace"""
    owner: str
    adapter: str
    kind: TurnKind
    messages: tuple[Message, ...]
    """the request as it came; images replaced by their content hashes"""
    tools: tuple[dict[str, Any], ...]
    prompt_ids: np.ndarray
    """int32 [P]"""
    sampling: Sampling
    completion: Completion | None = None
    reply: Message | None = None
    images: tuple[str, ...] = ()
    """sha256 of each image, in prompt order"""
    next_state: tuple[Message, ...] = ()
    """what the next request of the trace added after the reply; tool results all together"""
    state: TurnState = TurnState.OPEN
    reason: str = ""
    """why it is in this state, in words; `v3` when trained by version 3"""
    created: float = 0.0

    @property
    def status(self) -> str:
        """The state as people read it: `skipped:<reason>`, `trained:v3`, `waiting`."""
        detailed = (TurnState.SKIPPED, TurnState.TRAINED)
        return f"{self.state}:{self.reason}" if self.state in detailed else str(self.state)


class End(StrEnum):
    """Why a trace ended."""

    DONE = "done"
    IDLE = "idle"
    TURN_LIMIT = "turn_limit"
    TOKENS = "tokens"
    """the token budget of the episode is spent"""
    DEADLINE = "deadline"
    CONTEXT = "context"
    """the next request no longer fits the model's context"""
    CANCELLED = "cancelled"
    FAILED = "failed"
    CLOSED = "closed"
    """the client or the run ended it"""


@dataclass(frozen=True, slots=True)
class Trace:
    """The ordered turns of one episode or conversation."""

    id: str
    owner: str
    plugin: str
    task_id: str = ""
    group: str = ""
    """traces of one task attempted together share a group; empty outside groups"""
    end: End | None = None
    outcome: float | None = None
    judge: str = ""
    """who said the outcome"""
    failure: str = ""
    created: float = 0.0


@dataclass(frozen=True, slots=True)
class Signal:
    """A judgement of one turn: who said what, and why."""

    turn_id: str
    judge: str
    vote: int | None
    """+1, 0 or -1; None when the judge abstained"""
    votes: tuple[int | None, ...] = ()
    """every vote of the tally; None for an answer that could not be read"""
    number: float | None = None
    hints: tuple[str, ...] = ()
    """directive signals: 1 to 3 sentences each"""
    reason: str = ""
    seconds: float = 0.0
    """that the judge took; 0 where nobody measured"""

    @property
    def is_hint_only(self) -> bool:
        """Whether it was never meant to say how good the turn was."""
        return bool(self.hints) and not self.votes and self.vote is None and self.number is None


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """One token sequence ready to train on."""

    id: str
    turn_id: str
    trace_id: str
    owner: str
    adapter: str
    prompt_ids: np.ndarray
    """int32 [P]"""
    reply_ids: np.ndarray
    """int32 [R] exactly the sampled ids"""
    logps: np.ndarray
    """float32 [R] behaviour log-probs at the turn's own temperature"""
    mask: np.ndarray
    """bool [R] tokens that may be trained"""
    advantages: np.ndarray
    """float32 [R]"""
    versions: np.ndarray
    """int32 [R]"""
    temperature: float
    has_advantage: bool
    """whether the sample has a GRPO term at all (an abstained vote has none)"""
    hints: tuple[np.ndarray, ...] = ()
    """int32 [P_n] each: the prompt with one hint candidate in it, as token ids"""
    topk_ids: np.ndarray | None = None
    topk_logps: np.ndarray | None = None
    truncated: bool = False
    """the reply was cut at max_tokens"""
    outcome: float | None = None
    images: tuple[str, ...] = ()
    """sha256 of each image of the prompt (and of each hinted prompt), in order"""
    pictures: tuple[np.ndarray, ...] = ()
    """uint8 [H, W, 3] each: the images in the model's size; only on the way to the trainer"""

    @property
    def num_tokens(self) -> int:
        return len(self.prompt_ids) + len(self.reply_ids)

    @property
    def version(self) -> int:
        """The oldest weights that sampled a token of it (staleness counts from here)."""
        return int(self.versions.min()) if len(self.versions) else 0


class VersionStatus(StrEnum):
    PUBLISHED = "published"
    REFUSED = "refused"
    """the quality gate or the identity canary refused it"""
    ROLLED_BACK = "rolled_back"


@dataclass(frozen=True, slots=True)
class Version:
    """A named set of weights: (owner, adapter, number)."""

    owner: str
    adapter: str
    number: int
    parent: int | None
    checksum: str
    """sha256 of the manifest"""
    status: VersionStatus = VersionStatus.PUBLISHED
    kind: str = "full"
    """`full` weights or a `lora` adapter"""
    path: str = ""
    note: str = ""
    created: float = 0.0


@dataclass(frozen=True, slots=True)
class Loss:
    """The numbers of one loss evaluation over a global batch."""

    total: float
    rl: float
    opd: float
    kl: float
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Update:
    """One optimiser step, done and durable."""

    step: int
    version: int
    lease_id: str
    loss: Loss
    grad_norm: float
    lr: float
    seconds: float


def with_state(turn: Turn, state: TurnState, reason: str = "") -> Turn:
    """Return the turn in another state; states carry their reason."""
    return replace(turn, state=state, reason=reason)
