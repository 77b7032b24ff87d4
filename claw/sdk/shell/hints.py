"""What a failed command teaches, in words of ours: no sentence of a tool's output gets into a hint.

Owns: from how a turn failed to 1 or 2 sentences.
Does not own: whether hints are made, what is learned from them.
"""

from claw.sdk.shell.talk import Acted

BY_KIND = {
    "unreadable": "Answer with exactly one action in the form that the instructions ask for, and "
                  "nothing that is not an action.",
    "timeout": "The program did not come to an end. Choose a way that ends by itself, and bound "
               "what may run for long.",
    "oom": "The program needed more memory than there is. Work on the data line by line.",
}
BY_CODE = {
    1: "The command reported a failure. Check first that the names and patterns it is given exist.",
    2: "The command was used wrongly. Check its options, its quotes and its syntax.",
    126: "That file cannot be executed. Run it through its interpreter, or give it the right mode.",
    127: "That program is not on this machine. Use the standard shell tools or python3 instead.",
    137: "The process was killed. Use less memory or less time.",
}
OTHER = "The command failed. Look at what is there before acting on it, and do one thing at a time."


def of(acted: Acted) -> tuple[str, ...]:
    """Return the hints of a turn; none when all of it went well."""
    found: dict[str, None] = {}
    codes = acted.exit_codes or (None,) * len(acted.kinds)
    for kind, code in zip(acted.kinds, codes, strict=True):
        if kind in BY_KIND:
            found[BY_KIND[kind]] = None
        elif kind == "failed":
            found[BY_CODE.get(code or 0, OTHER)] = None
    return tuple(found)
