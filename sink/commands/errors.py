"""`sink errors` lists the bad records of the errors table, or counts them in groups. `sink errors replay` adds those to
the table that can be decoded now.

Raises ConfigError, and what `sink.bad_records.listing` and `sink.bad_records.replay` raise.
"""

from __future__ import annotations

import json
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
from sink.telemetry.shown import shown
from sink.telemetry.terminal import console

if TYPE_CHECKING:
    from sink.bad_records.replay import ReplayPreview
    from sink.bad_records.selection import Selection

_VALUE_BYTES = 80
"""The list of records shows so many bytes of a record's value."""
_STILL_BAD = 5
"""A replay names so many of the records that are still bad."""

app = typer.Typer(help="List the bad records of the errors table, or replay them.", invoke_without_command=True)


class ErrorGroup(str, Enum):
    REASON = "reason"
    KIND = "kind"
    TOPIC = "topic"
    PARTITION = "partition"
    TRANSACTION = "transaction"


@dataclass(frozen=True)
class RecordOptions:
    """The command-line options that select bad records; `sink errors` and `sink errors replay` share them."""

    topic: Annotated[str | None, typer.Option(help="Only records of this topic.", show_default=False)] = None
    partition: Annotated[int | None, typer.Option(help="Only records of this partition.", show_default=False)] = None
    offset: Annotated[
        str | None, typer.Option(help="Only this offset, or FIRST..LAST, both included.", show_default=False)
    ] = None
    since: Annotated[str | None, typer.Option(help="Only records of this time (ISO 8601) or later.")] = None
    until: Annotated[str | None, typer.Option(help="Only records before this time.")] = None
    kind: Annotated[
        str | None,
        typer.Option(
            help="Only this kind: value, key, headers, timestamp, partition or record key.", show_default=False
        ),
    ] = None
    reason: Annotated[str | None, typer.Option(help="Only records whose reason contains this text.")] = None

    def selection(self, sink: str, include_replayed: bool = False) -> Selection:
        """Parses the options. Raises ConfigError for an offset or a time that is malformed."""
        from sink.bad_records.selection import Selection, parse_offsets

        first, last = parse_offsets(self.offset)
        since = None if self.since is None else parse_time("--since", self.since)
        until = None if self.until is None else parse_time("--until", self.until)
        return Selection(
            sink, self.topic, self.partition, first, last, since, until, self.kind, self.reason, include_replayed
        )


def _with_record_options(command: Callable[..., None]) -> Callable[..., None]:
    """Returns the command with a signature for Typer, in which the fields of `RecordOptions` replace the parameter
    `record_options`.
    """
    options = signature(RecordOptions, eval_str=True).parameters

    @wraps(command)
    def run(**arguments: Any) -> None:
        command(record_options=RecordOptions(**{name: arguments.pop(name) for name in options}), **arguments)

    parameters: list[Parameter] = []
    for name, parameter in signature(command, eval_str=True).parameters.items():
        selection_options = (option.replace(kind=Parameter.KEYWORD_ONLY) for option in options.values())
        parameters += selection_options if name == "record_options" else [parameter]
    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
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
    record_options: RecordOptions,
    include_replayed: Annotated[bool, typer.Option("--replayed", help="Include records that were replayed.")] = False,
    group_by: Annotated[
        ErrorGroup | None,
        typer.Option(help="Count records in groups instead of listing them.", show_default=False),
    ] = None,
    limit: Annotated[int, typer.Option(help="The most records or groups to show.", min=1, max=100_000)] = 20,
    as_json: JsonOption = False,
) -> None:
    """List the bad records of the errors table, or count them in groups."""
    if context.invoked_subcommand is not None:
        _refuse_options_before(context.invoked_subcommand, context)
        return
    if config is None:
        # It is optional for Typer, because `sink errors replay` has its own.
        raise ConfigError("--config is missing. Name the sink's settings.")
    # Imported here: DuckDB and hudi-rs would slow down every other command.
    from sink.bad_records.listing import group_errors, list_errors
    from sink.hudi.files import Content, inspect_base_path
    from sink.operations.table_version import require_own_table

    settings = one_sink(config, sink)
    selection = record_options.selection(settings.name, include_replayed)
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
    """Raises ConfigError if an option precedes the subcommand, which would not see it."""
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
        typer.Option(
            help="Spark SQL expression of a record's `value`. Its result is decoded instead.", show_default=False
        ),
    ] = None,
    record_options: RecordOptions,
    yes: Annotated[bool, typer.Option("--yes", help="Do it.")] = False,
) -> None:
    """Add bad records to the table that are good with the present settings, or after an SQL expression. Without --yes,
    only show how many are good. With --yes, all workers have to be stopped.
    """
    settings = one_sink(config, sink)
    selection = record_options.selection(settings.name)
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
            f"{preview.marked:,} records were already in the table, added by a replay that was interrupted. They are"
            " marked as replayed now."
        )
    if is_upsert:
        verb = "are upserted now" if is_done else "would be upserted"
    else:
        verb = "are in the table now" if is_done else "would go into the table"
    out.print(f"{len(preview.good):,} records are good and {verb}; {len(preview.bad):,} are still bad.")
    for (topic, _, partition, offset, _), reason in sorted(preview.bad.items())[:_STILL_BAD]:
        out.print(Text(shown(f"{topic}-{partition} offset {offset}: {reason}"), style="yellow"), soft_wrap=True)
    if not is_done:
        out.print(UNCHANGED)


def _print_records(out: Console, rows: list[dict[str, Any]], total: int) -> None:
    records = [
        (
            row["_kafka_topic"],
            str(row["_kafka_partition"]),
            str(row["_kafka_offset"]),
            _formatted_time(row["_kafka_timestamp"]),
            row["kind"] + (" (replayed)" if row["replayed_instant"] else ""),
            Text(shown(row["reason"])),
            Text(shown(_beginning(row["value"]))),
        )
        for row in rows
    ]
    out.print(text_table(("topic", "partition>", "offset>", "time", "kind", "reason", "value"), records))
    out.print(f"{len(rows):,} of {total:,}")


def _print_groups(out: Console, groups: list[dict[str, Any]]) -> None:
    """Prints a table with the columns by which the records were grouped. A group has them, `records` and `first`."""
    names = [name for name in groups[0] if name not in ("records", "first")] if groups else []
    rows: list[Sequence[RenderableType]] = [
        (
            f"{group['records']:,}",
            "{topic}-{partition} offset {offset}".format(**group["first"]),
            *(Text(shown(str(group[name]))) for name in names),
        )
        for group in groups
    ]
    out.print(text_table(("records>", "first", *(name.removeprefix("_kafka_") for name in names)), rows))


def _print_json(rows: list[dict[str, Any]]) -> None:
    typer.echo(
        json.dumps(rows, indent=2, default=lambda value: _text(value) if isinstance(value, bytes) else str(value))
    )


def _formatted_time(value: datetime | str | None) -> str:
    """Formats a record's timestamp. DuckDB returns a time beyond the year 9999 as text. It is None if the record has
    none, or one that the table's column cannot hold.
    """
    return f"{value:%Y-%m-%d %H:%M:%S}" if isinstance(value, datetime) else value or ""


def _beginning(value: bytes | None) -> str:
    if value is None:
        return "null"
    text = _text(value[:_VALUE_BYTES])
    return text if len(value) <= _VALUE_BYTES else f"{text}..."


def _text(value: bytes) -> str:
    """Decodes UTF-8. Bytes that are not UTF-8 become escapes such as `\\xff`."""
    return value.decode(errors="backslashreplace")
