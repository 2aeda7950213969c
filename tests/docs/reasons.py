"""Writes the table of reasons into docs/how-to/bad-records.md: `python -m tests.docs.reasons`.

The reasons are those that the sink gives: for the bad values of docs/values.tsv, and for the bad records of
`tests/reports`. Of reasons that differ only in values, names and types the table has the first.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from coordination.errors import SinkError
from sink.config.record_formats import value_rules
from sink.decode.formats import ValueFormat
from sink.devtools.page_parts import ROOT, table, values
from sink.schema.table_schema import parse_ddl
from tests.reports.case_kit import CASES, Case, landed, settings_of_text

PAGE = ROOT / "docs" / "how-to" / "bad-records.md"
BEGIN, END = "<!-- begin: reasons -->\n", "\n<!-- end: reasons -->"
_FOUND = re.compile(r"column '.* where .* is needed|does not fit [\w(),]+|; dates between .*|'[^']*'|\d[\w.:+-]*")
_ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+")


def with_reasons(page: str) -> str:
    """Returns the page with the table of today's reasons."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}{reasons()}{END}{rest.partition(END)[2]}"


def reasons() -> str:
    first: dict[tuple[str, str], str] = {}
    for kind, reason in (*_of_values(), *_of_reports()):
        first.setdefault((kind, _FOUND.sub("", reason)), reason)
    rows = sorted((kind, _ADDRESS.sub("http://registry:8081", reason)) for (kind, _), reason in first.items())
    return table(("kind", "reason"), [(kind, reason.replace("|", "\\|").replace("\n", " ")) for kind, reason in rows])


def _of_values() -> Iterator[tuple[str, str]]:
    with tempfile.TemporaryDirectory() as directory:
        for column, setting, record, becomes in values("json"):
            if becomes == "bad":
                settings = settings_of_text(
                    Path(directory), f'schema.ddl: "c {column}"\n{setting.replace("=", ": ", 1)}'
                )
                form = ValueFormat("json", rules=value_rules(settings))
                decoder = form.decoder(parse_ddl(f"c {column}").value_struct)
                (bad,) = decoder.decode(pa.array([f'{{"c":{record}}}'.encode()])).bad
                yield "value", bad.reason


def _of_reports() -> Iterator[tuple[str, str]]:
    for path in sorted(CASES.iterdir()):
        case = Case(path)
        with tempfile.TemporaryDirectory() as directory:
            try:
                with case.settings(Path(directory)) as settings:
                    found = landed(settings, case)
            except SinkError:
                continue
        yield from ((bad.kind, bad.reason) for bad in found.bad)


def main() -> None:
    PAGE.write_text(with_reasons(PAGE.read_text()))


if __name__ == "__main__":
    main()
