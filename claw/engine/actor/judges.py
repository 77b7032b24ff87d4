"""The judge that `judge.kind` names.

Owns: choosing and building it. Does not own: running it over turns (`signals.py`).
"""

import os

from claw.config import JudgeConfig
from claw.errors import UsageError
from claw.sdk.judging import Judge

BUILT_IN = ("rules", "model", "none")


def build(config: JudgeConfig, ask: object) -> Judge | None:
    """Return the built-in judge; None for `none` and for judges of a plugin, which judge where the
    plugin runs and send their signals. `ask` asks claw's own workers.
    """
    if config.kind == "rules":
        from claw.sdk.judges.rules import RulesJudge

        return RulesJudge()
    if config.kind == "model":
        return _model(config, ask)
    return None


def _model(config: JudgeConfig, ask: object) -> Judge:
    from claw.sdk.judges.model import Endpoint, ModelJudge

    if config.base_url:
        key = os.environ.get(config.api_key_env, "") if config.api_key_env else ""
        if config.api_key_env and not key:
            raise UsageError(
                "the judge's key is not set", found=f"{config.api_key_env} is empty",
                do=f"export {config.api_key_env}=..., or empty judge.api_key_env",
            )
        ask = Endpoint(config.base_url, config.model, key, config.deadline_s, config.parallel)
    return ModelJudge(
        ask, votes=config.votes, max_hints=config.max_hints,  # type: ignore[arg-type]
        temperature=config.temperature, max_tokens=config.max_tokens,
        deadline_s=config.deadline_s, retries=config.retries,
    )
