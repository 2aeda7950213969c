"""`sink errors`: lists and groups the bad records of the errors table. `sink errors replay` puts repaired records into
the table.

Errors as `sink.bad_records.listing` and `sink.bad_records.replay`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, RenderableType
from rich.text import Text

from coordination.errors import ConfigError, TableError
from sink.commands.common import CONFIG_HELP, ConfigOption, JsonOption, SinkOption, one_sink, text_table
from sink.commands.examples import epilog
from sink.commands.offline import offline
from sink.commands.reset import UNCHANGED
from sink.commands.times import parse_time
from sink.telemetry.terminal import console

if TYPE_CHECKING:
    from sink.bad_records.replay import ReplayPreview
    from sink.bad_records.selection import Selection

SHOWN_CHARACTERS = 80
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")

app = typer.Typer(help="List the bad records of the errors table, or replay them.", invoke_without_command=True)


class ErrorGroup(str, Enum):
    REASON = "reason"
    KIND = "kind"
    TOPIC = "topic"
    PARTITION = "partition"
    TRANSACTION = "transaction"


@dataclass(frozen=True)
class RecordOptions:
    """The options of a command that select bad records."""

    topic: Annotated[str | None, typer.Option(help="Only of this topic.", show_default=False)] = None
    partition: Annotated[int | None, typer.Option(help="Only of this partition.", show_default=False)] = None
    offset: Annotated[str | None, typer.Option(help="Only this offset, or FIRST..LAST.", show_default=False)] = None
    since: Annotated[str | None, typer.Option(help="Only records from this time on (ISO 8601).")] = None
    until: Annotated[str | None, typer.Option(help="Only records before this time.")] = None
    kind: Annotated[
        str | None, typer.Option(help="value, key, headers, timestamp, partition or record key.", show_default=False)
    ] = None
    reason: Annotated[str | None, typer.Option(help="Only where the reason has this text in it.")] = None

    def selection(self, sink: str, replayed: bool = False) -> Selection:
        from sink.bad_records.selection import Selection, offsets

        low, high = offsets(self.offset)
        since = None if self.since is None else parse_time("--since", self.since)
        until = None if self.until is None else parse_time("--until", self.until)
        return Selection(sink, self.topic, self.partition, low, high, since, until, self.kind, self.reason, replayed)


def _with_record_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replaces the parameter `chosen` by the fields of `RecordOptions`, for Typer."""
    options = signature(RecordOptions, eval_str=True).parameters

    @wraps(command)
    def run(**arguments: Any) -> None:
        command(chosen=RecordOptions(**{name: arguments.pop(name) for name in options}), **arguments)

    parameters: list[Parameter] = []
    for name, parameter in signature(command, eval_str=True).parameters.items():
        selection_options = (option.replace(kind=Parameter.KEYWORD_ONLY) for option in options.values())
        parameters += selection_options if name == "chosen" else [parameter]
    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {shown_parameter.name: shown_parameter.annotation for shown_parameter in parameters}
    return run


@app.callback()
@_with_record_options
def errors(
    *,
    context: typer.Context,
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help=CONFIG_HELP, show_default=False),
    ] = None,
    sink: SinkOption = None,
    chosen: RecordOptions,
    replayed: Annotated[bool, typer.Option("--replayed", help="Those that were replayed, too.")] = False,
    group_by: Annotated[ErrorGroup | None, typer.Option(help="Count them instead.", show_default=False)] = None,
    limit: Annotated[int, typer.Option(help="How many rows to show.", min=1, max=100_000)] = 20,
    as_json: JsonOption = False,
) -> None:
    """List the bad records of the errors table, or count them by what they have in common."""
    if context.invoked_subcommand is not None:
        _refuse_options_before(context.invoked_subcommand, context)
        return
    if config is None:
        raise ConfigError("--config is missing. Name the sink's settings.")
    # Imported here: DuckDB and hudi-rs would slow every other command down.
    from sink.bad_records.listing import group_errors, list_errors
    from sink.hudi.files import Content, inspect_base_path
    from sink.operations.table_version import require_own_table

    settings = one_sink(config, sink)
    selection = chosen.selection(settings.name, replayed)
    require_own_table(settings)
    if inspect_base_path(settings.errors_base_path, settings.storage).content is Content.NOTHING:
        raise TableError(f"{settings.errors_base_path}: there is no errors table. No bad record has been found yet.")
    if group_by is not None:
        groups = group_errors(settings.errors_base_path, settings.storage, selection, group_by.value, limit)
        _print_json(groups) if as_json else _print_groups(console(), groups)
        return
    rows, total = list_errors(settings.errors_base_path, settings.storage, selection, limit)
    if as_json:
        _print_json(rows)
    else:
        _print_records(console(), rows, total)


def _refuse_options_before(subcommand: str, context: typer.Context) -> None:
    """Raises ConfigError if an option stands before the subcommand, which would not see it."""
    sources = {option.opts[0]: context.get_parameter_source(option.name or "") for option in context.command.params}
    names = [name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"]
    if names:
        raise ConfigError(
            f"sink errors: {', '.join(names)} before {subcommand} would change nothing. Write them after {subcommand}."
        )


@app.command(epilog=epilog("errors replay"))
@_with_record_options
def replay(
    *,
    config: ConfigOption,
    sink: SinkOption = None,
    sql: Annotated[
        str | None,
        typer.Option(help="Spark SQL that makes the value to be decoded, as text, from `value`.", show_default=False),
    ] = None,
    chosen: RecordOptions,
    yes: Annotated[bool, typer.Option("--yes", help="Do it.")] = False,
) -> None:
    """Put bad records into the table that are good by the settings as they are now, or after an SQL expression. Says
    first which, unless told --yes. Workers have to be stopped.
    """
    settings = one_sink(config, sink)
    selection = chosen.selection(settings.name)
    out = console()
    with offline(settings, "replay", yes) as (spark, client):
        from sink.bad_records.replay import Replay
        from sink.operations.operator_commit import commanded_sink

        replayer = Replay(spark, commanded_sink(settings), client)
        preview = replayer.run(selection, sql) if yes else replayer.preview(selection, sql)
        _print_outcome(out, preview, yes, settings.operation == "upsert")


def _print_outcome(out: Console, preview: ReplayPreview, is_done: bool, is_upsert: bool) -> None:
    if preview.marked:
        out.print(
            f"{preview.marked:,} were in the table already, of a replay that was interrupted: they are marked now."
        )
    if is_upsert:
        verb = "are upserted now" if is_done else "would be upserted"
    else:
        verb = "are in the table now" if is_done else "would go into the table"
    out.print(f"{len(preview.good):,} records are good and {verb}; {len(preview.bad):,} are still bad.")
    for (topic, _, partition, offset, _), reason in sorted(preview.bad.items())[:5]:
        out.print(Text(f"{topic}-{partition} offset {offset}: {reason}", style="yellow"), soft_wrap=True)
    if not is_done:
        out.print(UNCHANGED)


def _print_records(out: Console, rows: list[dict[str, Any]], total: int) -> None:
    records = [
        (
            row["_kafka_topic"],
            str(row["_kafka_partition"]),
            str(row["_kafka_offset"]),
            _time(row["_kafka_timestamp"]),
            row["kind"] + (" (replayed)" if row["replayed_instant"] else ""),
            Text(_printable(row["reason"])),
            Text(_printable(_head(row["value"]))),
        )
        for row in rows
    ]
    out.print(text_table(("topic", "partition>", "offset>", "time", "kind", "reason", "value"), records))
    out.print(f"{len(rows):,} of {total:,}")


def _print_groups(out: Console, groups: list[dict[str, Any]]) -> None:
    names = [name for name in groups[0] if name not in ("records", "first")] if groups else []
    rows: list[Sequence[RenderableType]] = [
        (
            f"{group['records']:,}",
            "{topic}-{partition} offset {offset}".format(**group["first"]),
            *(Text(str(group[name])) for name in names),
        )
        for group in groups
    ]
    out.print(text_table(("records>", "first", *(name.removeprefix("_kafka_") for name in names)), rows))


def _print_json(rows: list[dict[str, Any]]) -> None:
    typer.echo(
        json.dumps(rows, indent=2, default=lambda value: _text(value) if isinstance(value, bytes) else str(value))
    )


def _time(value: datetime | str | None) -> str:
    """Formats a time. A time beyond the year 9999, such as of misread milliseconds, is a text already; one that the
    column cannot hold is None."""
    return f"{value:%Y-%m-%d %H:%M:%S}" if isinstance(value, datetime) else value or ""


def _printable(text: str) -> str:
    """Returns the text with control characters escaped: a terminal would act upon them."""
    return _CONTROL.sub(lambda match: repr(match[0])[1:-1], text)


def _head(value: bytes | None) -> str:
    if value is None:
        return "null"
    head = _text(value[:SHOWN_CHARACTERS])
    return head if len(value) <= SHOWN_CHARACTERS else f"{head}..."


def _text(value: bytes) -> str:
    """Returns bytes as text, with bytes that are not UTF-8 written as escapes."""
    return value.decode(errors="backslashreplace")
