"""What the demo prints and draws."""

from pathlib import Path

from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from claw_env_personal.demo.measure import Measured
from claw_env_personal.demo.talk import Conversation

console = Console(highlight=False)


def progress(talks: list[Conversation], version: int, step: int, doing: str) -> Panel:
    """The live view: one mark per first reply, the newest exchange, what happens now."""
    marks = Text("first replies  ")
    for talk in talks:
        marks.append("● " if talk.is_hit else "○ ", "green" if talk.is_hit else "red")
    rows: list[Text] = [marks, Text(f"version v{version}   steps {step}   {doing}", "bold")]
    if talks:
        for message in talks[-1].messages[:3]:
            who = "person" if message["role"] == "user" else "agent "
            rows.append(Text(f"  {who}  {_short(message['content'], 150)}", "dim"))
    return Panel(Group(*rows), title=f"{len(talks)} conversations", border_style="cyan")


def _short(text: str, length: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= length else text[: length - 1] + "…"


def table(before: Measured, after: Measured, met_at: int | None, limit: int) -> Table:
    """The before/after table."""
    found = Table(title="what changed", title_justify="left")
    for column in ("", "before", "after"):
        found.add_column(column)
    n = before.num_questions
    rows = [
        (f"held-out hit rate ({n} questions)", before.hit_rate, after.hit_rate),
        ("  taste met", before.taste_rate, after.taste_rate),
        ("  on topic", before.topic_rate, after.topic_rate),
        (f"facts right ({before.num_facts} questions)", before.accuracy, after.accuracy),
    ]
    for name, old, new in rows:
        found.add_row(name, f"{old:.2f}", f"{new:.2f}")
    kept = after.accuracy / before.accuracy if before.accuracy else 0.0
    found.add_row("  kept of the facts", "", f"{kept:.2f}")
    found.add_row("conversations until 3 hits in a row", "",
                  str(met_at) if met_at else f"not within {limit}")
    found.add_row("version", f"v{before.version}", f"v{after.version}")
    return found


def replies(before: Measured, after: Measured, count: int = 3) -> Group:
    """Real replies to the same held-out questions, before and after."""
    parts: list[Panel] = []
    for (question, old, _), (_, new, hit) in list(
        zip(before.replies, after.replies, strict=True)
    )[:count]:
        text = Text()
        text.append(f"before  {_short(old, 420)}\n\n", "dim")
        text.append(f"after   {_short(new, 420)}", "green" if hit else "yellow")
        parts.append(Panel(text, title=question.text, title_align="left"))
    return Group(*parts)


def curve(
    talks: list[Conversation], versions: list[int], before: Measured, after: Measured,
    title: str, path: Path,
) -> None:
    """Write the learning curve: hits of first replies, their running rate, versions."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import MaxNLocator

    hits = [t.is_hit for t in talks]
    x = list(range(1, len(hits) + 1))
    rate = [sum(hits[max(0, i - 8):i]) / len(hits[max(0, i - 8):i]) for i in x]
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(10, 4), width_ratios=(3, 1), layout="constrained"
    )
    left.plot(x, rate, color="#2a7f9e", label="rate over the last 8")
    for is_hit, color, name in ((True, "#2e9e4f", "hit"), (False, "#c0392b", "miss")):
        at = [i for i, hit in zip(x, hits, strict=True) if hit is is_hit]
        left.scatter(at, [float(is_hit)] * len(at), s=18, color=color, label=f"first reply, {name}")
    steps = left.twinx()
    steps.step(x, versions, where="post", color="#999999", linewidth=1)
    steps.set_ylabel("version that answered", color="#777777")
    steps.yaxis.set_major_locator(MaxNLocator(integer=True))
    left.set(xlabel="conversation", ylabel="taste met and on topic", ylim=(-0.05, 1.05),
             title=title)
    left.legend(loc="upper left", bbox_to_anchor=(0.0, 0.93), frameon=False, fontsize=9)
    names = ["hit rate\nheld-out", "facts\nright"]
    right.bar([0, 1.5], [before.hit_rate, before.accuracy], 0.6, label="before", color="#bbbbbb")
    right.bar([0.6, 2.1], [after.hit_rate, after.accuracy], 0.6, label="after", color="#2a7f9e")
    right.set_xticks([0.3, 1.8], names)
    right.set_ylim(0, 1)
    right.legend()
    figure.savefig(path, dpi=110)
    plt.close(figure)
