"""The settings of the plugin: `[plugin.openenv]`."""

from typing import Any
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator


class OpenenvConfig(BaseModel):
    """Which server is played, and how."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    url: str
    """of the server: `ws://host:port` or `http://host:port` (wss, https), with its path if any"""
    tasks: int = Field(64, ge=1)
    """tasks of the split `train`; a task is a seed of the server's reset"""
    eval_tasks: int = Field(16, ge=1)
    """tasks of the split `eval`; their seeds are others"""
    reset: dict[str, Any] = {}
    """further fields of each reset, such as a split or a difficulty that the server knows"""
    prompt: str = ""
    """a system message; empty: the server's own description of itself"""
    connect_s: float = Field(60.0, gt=0)
    """how long an episode waits for a session: the server may be full, or starting"""
    step_s: float = Field(120.0, gt=0)
    """how long the server may take to answer a reset or a step"""
    max_message_mb: float = Field(4.0, gt=0, le=256)
    """largest answer of the server"""
    max_observation: int = Field(16_000, ge=200)
    """characters of an observation that the policy sees; the middle of a longer one is left out"""

    @field_validator("url")
    @classmethod
    def _is_an_address(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme not in ("ws", "wss", "http", "https") or not parts.hostname:
            raise ValueError("an address such as ws://127.0.0.1:8000 or https://host/path")
        if parts.query or parts.fragment:
            raise ValueError("an address without ? and #")
        return url.rstrip("/").removesuffix("/ws")

    @property
    def http_url(self) -> str:
        """The address for HTTP."""
        return "http" + self.url.removeprefix("ws").removeprefix("http")

    @property
    def ws_url(self) -> str:
        """The address of sessions."""
        return "ws" + self.url.removeprefix("ws").removeprefix("http") + "/ws"

    @property
    def max_bytes(self) -> int:
        """Bytes of the largest answer."""
        return int(self.max_message_mb * 2**20)
