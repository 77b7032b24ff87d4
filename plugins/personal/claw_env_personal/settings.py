"""The settings of the plugin: `[plugin.personal]`."""

from pydantic import BaseModel, ConfigDict, Field


class PersonalConfig(BaseModel):
    """How the endpoint treats its clients."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    cors_origin: str = ""
    """the one web page (`https://host:port`) that may call the endpoint; empty: none"""
    keepalive_s: float = Field(3.0, gt=0, le=60)
    """seconds of silence before a streamed answer sends a comment line, so that clients wait"""
    stalled_s: float = Field(60.0, gt=0)
    """a client that takes no byte for so long counts as gone"""
