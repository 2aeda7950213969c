"""`sink infer`: reads some of a topic once and prints columns that can hold its records.

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
"""Lines of each kind in a summary."""


def infer(
    config: ConfigOption,
    sink: SinkOption = None,
    topic: Annotated[
        list[str] | None, typer.Option(help="Only this one of the topics. May be repeated.", show_default=False)
    ] = None,
    records: Annotated[int, typer.Option(help="How many records to read, the newest ones.", min=1)] = 10_000,
    from_beginning: Annotated[bool, typer.Option("--from-beginning", help="Read the oldest records.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the columns here too.", show_default=False)
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file of --output.")] = False,
) -> None:
    """Read some of the topics once; write down columns and settings."""
    # Imported here: decoders and PySpark's types would slow down every other command.
    from sink.operations.inference import infer as infer_columns
    from sink.operations.samples import SampleRequest

    settings = one_sink(config, sink, columns=False)
    if output is not None:
        _check(output, force)
    inference = infer_columns(settings, SampleRequest(tuple(topic or ()), records, from_beginning))
    typer.echo(inference.ddl)
    for line in summary(inference):
        typer.echo(line, err=True)
    if output is not None:
        _write(output, f"{inference.ddl}\n", force)
        typer.echo(f"Written to {output}: set schema.file to it.", err=True)


def summary(inference: Inference) -> Iterator[str]:
    """Yields the sentences that a reader needs before relying on the columns."""
    sample = inference.sample
    cut_note = f"; {sample.cut}" if sample.cut else ""
    yield f"{len(inference.columns.fields):,} columns, from {inference.origin}."
    yield f"{len(sample.positions):,} records read{_spans(inference)}{cut_note}."
    yield from (f"- {line}" for line in _shortened(inference.warnings))
    if inference.null:
        yield f"- null throughout, and STRING for want of better: {', '.join(_shortened(inference.null))}"
    if inference.missing:
        yield f"- not in every record, and null there: {', '.join(_shortened(inference.missing))}"
    if inference.bad:
        yield f"{len(inference.bad):,} values do not fit the columns. A sink that meets one halts:"
        yield from (f"- {line}" for line in _shortened(inference.bad))
    if inference.settings:
        yield "These records also need:"
        yield from (f"  {name}: {value}" for name, value in inference.settings.items())


def _spans(inference: Inference) -> str:
    offsets_by_partition: dict[str, list[int]] = {}
    for partition, offset in inference.sample.positions:
        offsets_by_partition.setdefault(str(partition), []).append(offset)
    lines = [f"{name} {min(offsets)} to {max(offsets)}" for name, offsets in offsets_by_partition.items()]
    return f": {', '.join(_shortened(lines))}" if lines else ""


def _shortened(lines: Sequence[str]) -> Sequence[str]:
    more = len(lines) - SHOWN
    return lines if more <= 0 else [*lines[:SHOWN], f"and {more:,} more"]


def _check(output: Path, force: bool) -> None:
    """Checks the output file, before topics are read in vain."""
    if not output.absolute().parent.is_dir():
        raise ConfigError(f"--output: {output.absolute().parent} is not a directory. Make it or name another place.")
    if output.is_dir():
        raise ConfigError(f"--output: {output} is a directory. Name a file.")
    if output.exists() and not force:
        raise _exists(output)


def _exists(output: Path) -> ConfigError:
    return ConfigError(f"--output: {output} exists already. Name another file, or replace it with --force.")


def _write(output: Path, text: str, force: bool) -> None:
    """Replaces an existing file atomically: half of a schema could pass for a whole one."""
    new_file = output.with_name(f".{output.name}.{os.getpid()}") if force else output
    try:
        with new_file.open("x", encoding="utf-8") as file:
            file.write(text)
        if force:
            new_file.replace(output)
    except FileExistsError:
        raise _exists(new_file) from None
    except OSError as error:
        raise ConfigError(f"--output: {new_file} cannot be written ({error.strerror}). Name another place.") from None
