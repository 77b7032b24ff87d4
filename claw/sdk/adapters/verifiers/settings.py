"""The settings of the plugin: `[plugin.verifiers]`."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class VerifiersConfig(BaseModel):
    """Which package is played."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    package: str = Field(min_length=1)
    """an installed verifiers package: `name`, or `owner/name@version` as its hub writes it"""
    args: dict[str, Any] = {}
    """v1: fields of the taskset's configuration; v0: arguments of `load_environment`"""
    eval_args: dict[str, Any] = {}
    """the same for the split `eval`, above `args`"""

    @property
    def module(self) -> str:
        """The module's name, as verifiers makes it of the package's."""
        name = self.package.rsplit("/", 1)[-1].partition("@")[0]
        return name.replace("-", "_").lower()

    def arguments(self, split: str) -> dict[str, Any]:
        """The arguments of one split."""
        return self.args | (self.eval_args if split == "eval" else {})
