"""Tables in Markdown, and figures in them."""

from __future__ import annotations

from collections.abc import Sequence

from tests.bench.figures import Spread


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [
        f"| {' | '.join(heads)} |",
        f"|{'|'.join('---' if not index else '---:' for index in range(len(heads)))}|",
    ]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows), ""])


def spread_text(spread: Spread, form: str) -> str:
    if spread.least == spread.most:
        return f"**{spread.median:{form}}**"
    return f"**{spread.median:{form}}** ({spread.least:{form}} to {spread.most:{form}})"
