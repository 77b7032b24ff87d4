"""From what a person typed to the names of a plugin: `My Env`, `my_env` and `MyEnv` are one.

    Names.of("My Env")  ->  my-env, claw-env-my-env, claw_env_my_env, MyEnv, MyJudge
"""

import re
import unicodedata
from dataclasses import dataclass

from claw.errors import UsageError

PREFIX = "claw-env-"
MAX_NAME = 40


@dataclass(frozen=True, slots=True)
class Names:
    """All names that follow from one."""

    name: str
    """the word after --plugin, and `[plugin.NAME]`"""

    @classmethod
    def of(cls, typed: str) -> "Names":
        """Normalise: letters and digits of ASCII in lower case, hyphens between words."""
        plain = unicodedata.normalize("NFKD", typed).encode("ascii", "ignore").decode()
        apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", plain)  # MyEnv -> My-Env
        name = re.sub(r"[^a-z0-9]+", "-", apart.lower()).strip("-").removeprefix(PREFIX)
        if not name or len(name) > MAX_NAME:
            raise UsageError(
                "not a name for a plugin", found=repr(typed),
                allowed=f"ASCII letters and digits, at most {MAX_NAME}, words apart by - or _",
                do="claw plugin new word-games",
            )
        return cls(name)

    @property
    def distribution(self) -> str:
        return f"{PREFIX}{self.name}"

    @property
    def module(self) -> str:
        return self.distribution.replace("-", "_")

    def of_class(self, role: str) -> str:
        """`word-games` -> `WordGamesEnv`; a role that the name ends with is not said twice."""
        words = [word.capitalize() for word in self.name.split("-")]
        if words[-1] == role and len(words) > 1:
            words.pop()
        said = "".join(words)
        return f"{'The' if said[0].isdigit() else ''}{said}{role}"
