"""`sink reland`: lands ranges of the log again, in the place of the rows that the table has of them.

Errors as `sink.relanding.reland`.
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
_SHOWN = 20


def reland(
    config: ConfigOption,
    ranges: Annotated[
        list[str],
        typer.Argument(
            help="TOPIC:PARTITION=FIRST..LAST, both included, or one offset. May be repeated.",
            metavar="RANGE",
            show_default=False,
        ),
    ],
    sink: SinkOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do it.")] = False,
) -> None:
    """Land ranges of the log again, in the place of the rows that the table has of them: one commit repairs what
    `sink audit` has found. Shows first what it would do, unless told --yes. Workers have to be stopped.
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
        raise Conflict("nothing can be landed again as things are")


def parse_ranges(texts: Sequence[str]) -> tuple[OffsetRange, ...]:
    """Returns the ranges, merged. Raises ConfigError."""
    found = []
    for text in texts:
        match = _RANGE.match(text)
        if match is None:
            raise ConfigError(f"{text!r} is not TOPIC:PARTITION=FIRST..LAST, like orders:3=120..130")
        first, last = int(match["first"]), int(match["last"] or match["first"])
        if last < first:
            raise ConfigError(f"{text!r} ends before it begins")
        found.append(OffsetRange(match["topic"], int(match["partition"]), first, last + 1))
    return merged(found)


def _print(out: Console, preview: Preview, is_done: bool, is_upsert: bool) -> None:
    for reason in preview.refusals:
        out.print(Text(in_sentences(f"Refused: {reason}"), style="yellow"), soft_wrap=True)
    if preview.refusals:
        return
    for piece in preview.pieces[:_SHOWN]:
        out.print(Text(str(OffsetRange(piece.topic, piece.partition, piece.start, piece.end))))
    if len(preview.pieces) > _SHOWN:
        out.print(f"and {len(preview.pieces) - _SHOWN:,} ranges more")
    keys = " of the keys concerned" if is_upsert else ""
    verbs = ("were deleted", "were written") if is_done else ("would be deleted", "would be written")
    out.print(
        f"The log has {preview.records:,} records of these offsets. {preview.deleted:,} rows{keys} {verbs[0]}, and"
        f" {preview.landed:,} {verbs[1]}, in one commit."
    )
    out.print(f"{len(preview.groups):,} file groups {'were' if is_done else 'would be'} written again:")
    for path, file_id in preview.groups[:_SHOWN]:
        out.print(Text(f"  {path or '(root)'}/{file_id}"), soft_wrap=True)
    for note in preview.notes[:_SHOWN]:
        out.print(Text(note, style="yellow"), soft_wrap=True)
    if is_done:
        out.print(f"Done, as transaction {preview.number} (commit {preview.instant}). Start the workers again.")
    else:
        out.print(UNCHANGED)
