"""`sink infer`: reads some of a topic once and prints the columns that hold it.

The columns go to standard output, warnings about them to standard error. Exit status 0 if there are columns. Errors as
`sink.operations.inference`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coordination.errors import ConfigError
from sink.commands.common import ConfigOption, SinkOption, one_sink

if TYPE_CHECKING:
    from sink.operations.inference import Inference

SHOWN = 20
"""Lines of one kind that a summary has."""


def infer(
    config: ConfigOption,
    sink: SinkOption = None,
    topic: Annotated[
        list[str] | None, typer.Option(help="Only this one of the topics; may be repeated.", show_default=False)
    ] = None,
    records: Annotated[int, typer.Option(help="How many records to read, the newest ones.", min=1)] = 10_000,
    from_beginning: Annotated[bool, typer.Option("--from-beginning", help="Read the oldest records.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the columns here too.", show_default=False)
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file of --output.")] = False,
) -> None:
    """Read some of the topics once and write down their columns."""
    # Imported here: decoders and PySpark's types would slow every other command down.
    from sink.operations.inference import SampleRequest
    from sink.operations.inference import infer as inferred

    settings = one_sink(config, sink, columns=False)
    if output is not None:
        _check(output, force)
    found = inferred(settings, SampleRequest(tuple(topic or ()), records, from_beginning))
    typer.echo(found.ddl)
    for line in summary(found):
        typer.echo(line, err=True)
    if output is not None:
        _write(output, f"{found.ddl}\n", force)
        typer.echo(f"Written to {output}: set schema.file to it.", err=True)


def summary(found: Inference) -> Iterator[str]:
    """Yields the sentences that a reader needs before relying on the columns."""
    sample = found.sample
    cut = "; no more, for they are held in memory" if sample.cut else ""
    yield f"{len(found.columns.fields):,} columns, from {found.origin}."
    yield f"{len(sample.values):,} records read{_spans(found)}{cut}."
    yield from (f"- {line}" for line in _shortened(found.warnings))
    if found.null:
        yield f"- null throughout, and STRING for want of better: {', '.join(_shortened(found.null))}"
    if found.missing:
        yield f"- not in every record, and null there: {', '.join(_shortened(found.missing))}"
    if found.bad:
        yield f"{len(found.bad):,} values do not fit the columns; a sink that meets one halts:"
        yield from (f"- {line}" for line in _shortened(found.bad))


def _spans(found: Inference) -> str:
    spans: dict[str, list[int]] = {}
    for source, offset in found.sample.places:
        spans.setdefault(str(source), []).append(offset)
    shown = [f"{name} {min(offsets)} to {max(offsets)}" for name, offsets in spans.items()]
    return f": {', '.join(_shortened(shown))}" if shown else ""


def _shortened(lines: Sequence[str]) -> Sequence[str]:
    more = len(lines) - SHOWN
    return lines if more <= 0 else [*lines[:SHOWN], f"and {more:,} more"]


def _check(output: Path, force: bool) -> None:
    """Checks the output file, before topics are read for nothing."""
    if not output.absolute().parent.is_dir():
        raise ConfigError(f"--output: {output.absolute().parent} is no directory; make it or name another place")
    if output.is_dir():
        raise ConfigError(f"--output: {output} is a directory; name a file")
    if output.exists() and not force:
        raise _exists(output)


def _exists(output: Path) -> ConfigError:
    return ConfigError(f"--output: {output} exists already; name another file, or replace it with --force")


def _write(output: Path, text: str, force: bool) -> None:
    """Replaces an existing file as a whole: half of a schema could pass for one."""
    made = output.with_name(f".{output.name}.{os.getpid()}") if force else output
    try:
        with made.open("x", encoding="utf-8") as file:
            file.write(text)
        if force:
            made.replace(output)
    except FileExistsError:
        raise _exists(made) from None
    except OSError as error:
        raise ConfigError(f"--output: {made} cannot be written ({error.strerror}); name another place") from None
