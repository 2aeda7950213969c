"""`sink reland`: reads ranges of the Kafka log again, and replaces the rows that the table has of them.

Raises ConfigError for a malformed range, Conflict if the repair is refused, and what `sink.relanding.reland` raises.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from coordination.errors import ConfigError, Conflict, in_sentences
from coordination.planning.relanding import OffsetRange, merged
from sink.commands.common import ConfigOption, SinkOption, one_sink
from sink.commands.offline import offline
from sink.commands.reset import UNCHANGED
from sink.telemetry.terminal import console

if TYPE_CHECKING:
    from sink.relanding.repair import Preview

_RANGE = re.compile(
    r"(?P<topic>[A-Za-z0-9._-]+):(?P<partition>\d{1,9})=(?P<first>\d{1,18})(?:\.\.(?P<last>\d{1,18}))?\Z", re.ASCII
)
_MOST_SHOWN = 20
"""The longest list of ranges, of file groups or of notes that is printed."""


def reland(
    config: ConfigOption,
    ranges: Annotated[
        list[str],
        typer.Argument(
            help="TOPIC:PARTITION=FIRST..LAST, both included, or TOPIC:PARTITION=OFFSET. May be repeated.",
            metavar="RANGE",
            show_default=False,
        ),
    ],
    sink: SinkOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do it.")] = False,
) -> None:
    """Read ranges of the log again, and replace the rows that the table has of them, in one commit. This repairs what
    `sink audit` has found. Without --yes, only show what would change. With --yes, all workers have to be stopped.
    """
    wanted = parse_ranges(ranges)
    settings = one_sink(config, sink)
    out = console()
    with offline(settings, "reland", yes) as (spark, client):
        from sink.relanding.reland import Reland

        repair = Reland(spark, settings, client, wanted)
        preview = repair.run() if yes else repair.preview()
    _print(out, preview, yes, settings.operation == "upsert")
    if preview.refusals:
        raise Conflict("reland: refused, for the reasons above. Nothing was changed.")


def parse_ranges(texts: Sequence[str]) -> tuple[OffsetRange, ...]:
    """Parses ranges such as `orders:3=120..130`. Returns them sorted, without overlap. Raises ConfigError for a
    malformed one.
    """
    found = []
    for text in texts:
        match = _RANGE.match(text)
        if match is None:
            raise ConfigError(f"{text!r} is not TOPIC:PARTITION=FIRST..LAST. Write it like orders:3=120..130.")
        first, last = int(match["first"]), int(match["last"] or match["first"])
        if last < first:
            raise ConfigError(f"{text!r} ends before it begins. Write the smaller offset first.")
        found.append(OffsetRange(match["topic"], int(match["partition"]), first, last + 1))
    return merged(found)


def _print(out: Console, preview: Preview, is_done: bool, is_upsert: bool) -> None:
    for reason in preview.refusals:
        out.print(Text(in_sentences(f"Refused: {reason}"), style="yellow"), soft_wrap=True)
    if preview.refusals:
        return
    _print_list(out, [str(OffsetRange(s.topic, s.partition, s.start, s.end)) for s in preview.pieces], "ranges")
    keys = " of the keys concerned" if is_upsert else ""
    were = "were" if is_done else "would be"
    out.print(
        f"The log has {preview.records:,} records of these offsets. {preview.deleted:,} rows{keys} {were} deleted, and"
        f" {preview.landed:,} {were} written, in one commit."
    )
    out.print(f"{len(preview.groups):,} file groups {were} rewritten:")
    # The path of a table without partitions is empty.
    _print_list(out, [f"  {path or '(root)'}/{file_id}" for path, file_id in preview.groups], "file groups")
    _print_list(out, preview.notes, "notes", style="yellow")
    if is_done:
        out.print(f"Done, as transaction {preview.number} (commit {preview.instant}). Start the workers again.")
    else:
        out.print(UNCHANGED)


def _print_list(out: Console, lines: Sequence[str], what: str, style: str = "") -> None:
    """Prints a line each for the first `_MOST_SHOWN`, and how many more there are. `what` names them."""
    for line in lines[:_MOST_SHOWN]:
        out.print(Text(line, style=style), soft_wrap=True)
    if len(lines) > _MOST_SHOWN:
        out.print(f"and {len(lines) - _MOST_SHOWN:,} more {what}")
