"""The names that settings may hold are those of the tables, and a plugin may add to them."""

import pytest

from claw import config
from claw.config import RunConfig
from claw.engine.actor import credit
from claw.engine.report import _check_names
from claw.engine.trainer import loss
from claw.errors import UsageError
from claw.sdk import hookimpl, registry


def test_every_built_in_name_is_in_its_table() -> None:
    assert set(config.METHODS) == set(loss.METHODS)
    assert set(config.CREDITS) == set(credit.TABLE)


class Bare:
    @hookimpl
    def claw_defaults(self) -> dict[str, object]:
        return {}


@pytest.mark.parametrize(("section", "field"), [
    ("train", "method"), ("credit", "kind"), ("judge", "kind"),
])
def test_an_unknown_name_is_refused_before_anything_starts(section: str, field: str) -> None:
    run = RunConfig.model_validate({section: {field: "nonsense"}})
    with pytest.raises(UsageError, match=f"{section}.{field}"):
        _check_names(run, registry.from_object("bare", Bare()))


def test_a_plugin_with_the_hook_may_bring_the_name() -> None:
    class Brings:
        @hookimpl
        def claw_credit(self, register) -> None:
            register("mine", lambda group, alpha, baseline: group)

    plugin = registry.from_object("brings", Brings())
    run = RunConfig.model_validate({"credit": {"kind": "mine"}})
    _check_names(run, plugin)
    plugin.hook.claw_credit(register=credit.register)
    try:
        assert "mine" in credit.TABLE and "mine" in credit.NEEDS_GROUP
    finally:
        del credit.TABLE["mine"]
        credit.NEEDS_GROUP.discard("mine")
