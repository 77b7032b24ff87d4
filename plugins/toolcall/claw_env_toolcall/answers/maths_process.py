"""`python -m claw_env_toolcall.answers.maths_process`: pairs in, true or false out, as JSON lines.

Owns: parsing both sides and comparing them with math-verify. Ends when its input ends.
Does not own: deadlines (`maths` kills this process).
"""

import json
import resource
import sys

MEMORY = 2 << 30
"""bytes of address space"""


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

    how = (LatexExtractionConfig(), ExprExtractionConfig())

    def read(text: str) -> list[object]:
        # in dollars LaTeX is LaTeX wherever the answer was found
        return list(parse(f"${text}$", extraction_config=how, parsing_timeout=None)
                    or parse(text, extraction_config=how, parsing_timeout=None))

    print("ready", flush=True)
    for line in sys.stdin:
        answer, right = json.loads(line)
        try:
            equal = verify(read(right), read(answer), timeout_seconds=None)
        except Exception:  # whatever a library of algebra thinks of a stranger's formula
            equal = False
        print(json.dumps(bool(equal)), flush=True)


if __name__ == "__main__":
    main()
