"""Writes the parts of pages that the code or a data file has: `python -m sink.devtools.page_parts`.

A part is between `<!-- begin: NAME -->` and `<!-- end: NAME -->`; the rest of the page stays. A test checks that the
pages are current. Raises ValueError for a page without one of its parts, OSError outside a checkout.
"""

from __future__ import annotations

import ast
import csv
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from sink.devtools.protocol_reference import life, phases, rules, znodes
from sink.telemetry.metrics import ProcessMetrics
from sink.telemetry.partition_metrics import PARTITION_GAUGES

ROOT = Path(__file__).resolve().parents[2]
_FAMILY = re.compile(r"^# HELP (\w+) (.+)\n# TYPE \1 (\w+)$", re.MULTILINE)
_TITLE = re.compile(r"# (\d+)\. (.+)")


def metrics() -> str:
    """Returns the table of Prometheus' metrics."""
    process = ProcessMetrics()
    labels = {**process.families.labels, **dict.fromkeys(dict(PARTITION_GAUGES), ("topic", "partition"))}
    rows = [
        (f"`{name}`", kind, ", ".join(f"`{label}`" for label in labels[name.removesuffix("_total")]), text)
        for name, text, kind in _FAMILY.findall(process.text().decode())
    ]
    return table(("metric", "type", "labels", ""), rows)


def facts(form: str, by: str) -> Callable[[], str]:
    """Returns a function that gives the table of what values of a format become, from docs/values.tsv. `by` heads what
    decides beside the type."""

    def part() -> str:
        cells = [(f"`{column}`", setting, f"`{record}`", becomes) for column, setting, record, becomes in values(form)]
        return table(("column", by, "in the record", "in the table"), cells)

    return part


def values(form: str) -> list[tuple[str, str, str, str]]:
    """Returns the rows of docs/values.tsv for a format: column, setting, record, and what becomes of it."""
    with (ROOT / "docs" / "values.tsv").open(newline="") as file:
        rows = [row for row in csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE) if row[0] == form]
    return [(column, setting, record, becomes) for _, column, setting, record, becomes in rows]


def schema_facts() -> str:
    """Returns the table of what properties of a JSON Schema become, from docs/values.tsv."""
    cells = [(f"`{written}`", f"`{column}`", said) for column, _, written, said in values("json-schema")]
    return table(("property c", "column", "warning"), cells)


def packages() -> str:
    """Returns the table of packages, with the first line of each one's docstring."""
    rows = []
    for file in sorted(ROOT.glob("coordination/*/__init__.py")) + sorted(ROOT.glob("sink/*/__init__.py")):
        name = str(file.parent.relative_to(ROOT))
        docstring = ast.get_docstring(ast.parse(file.read_text())) or ""
        rows.append((f"[`{name}`](../{name})", docstring.partition("\n")[0]))
    return table(("package", ""), rows)


def decisions() -> str:
    """Returns the list of decisions."""
    pages = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    titles = [(_TITLE.match(page.read_text()), page.name) for page in pages]
    return "\n".join(f"{title[1]}. [{title[2]}]({name})" for title, name in titles if title)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a table of Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |".replace("|  |", "| |") for cells in lines)


PARTS: Mapping[str, Mapping[str, Callable[[], str]]] = {
    "docs/how-it-works.md": {"phases": phases, "rules": rules, "znodes": znodes, "life": life},
    "docs/monitoring.md": {"metrics": metrics},
    "docs/tour.md": {"packages": packages},
    "docs/values.md": {
        "json": facts("json", "settings"),
        "connect": facts("connect", "its name in the schema"),
        "avro": facts("avro", "settings"),
        "protobuf": facts("protobuf", "settings"),
        "json-schema": schema_facts,
    },
    "docs/decisions/README.md": {"decisions": decisions},
}


def render(name: str, page: str) -> str:
    """Returns a page with every part up to date. `name` is its path in the checkout."""
    for part, text in PARTS[name].items():
        before, begin, rest = page.partition(f"<!-- begin: {part} -->")
        _, end, after = rest.partition(f"<!-- end: {part} -->")
        if not begin or not end:
            raise ValueError(f"{name} has no part {part!r}")
        page = f"{before}{begin}\n{text()}\n{end}{after}"
    return page


if __name__ == "__main__":
    for name in PARTS:
        target = ROOT / name
        target.write_text(render(name, target.read_text()))
