"""`sink doctor`: gathers the facts for a report of a defect in one text or archive, without secrets.

Exit status 0, whatever it finds: the report has the problems.
"""

from __future__ import annotations

import io
import os
import tarfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coordination.errors import ConfigError
from sink.commands.common import ConfigOption
from sink.telemetry.terminal import quiet

if TYPE_CHECKING:
    from sink.operations.diagnosis import ReportPart

ARCHIVES = (".tar.gz", ".tgz")


def doctor(
    config: ConfigOption,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write it here: a text, or an archive if it ends with .tar.gz."),
    ] = None,
    log: Annotated[
        list[Path] | None, typer.Option(help="A log file to add. May be repeated.", show_default=False)
    ] = None,
) -> None:
    """Gather what a report of a defect needs: versions, settings, checks, status, the ends of the logs. No secrets."""
    # Imported here: checks of table and storage need PySpark and Arrow, which `sink --help` can do without.
    from sink.operations.diagnosis import diagnose

    quiet()
    if output is not None:
        _require_new(output)
    parts = diagnose(config, log or ())
    if output is None:
        typer.echo(as_text(parts), nl=False)
        return
    is_archive = output.name.endswith(ARCHIVES)
    _write(output, as_archive(parts, output.name.partition(".")[0]) if is_archive else as_text(parts).encode())
    typer.echo(f"{output} has {len(parts)} parts. Read it before you send it: names of hosts and topics are in it.")


def _require_new(output: Path) -> None:
    """Raises ConfigError if the file exists, before the facts are gathered in vain."""
    if output.exists() or output.is_symlink():
        raise _exists(output)


def _exists(output: Path) -> ConfigError:
    return ConfigError(f"--output: {output} exists already. Choose another file, or remove it.")


def _write(output: Path, content: bytes) -> None:
    """Writes a new file for this user alone. One that exists may be a link, or readable by everybody."""
    try:
        with open(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
    except FileExistsError:
        raise _exists(output) from None
    except OSError as error:
        raise ConfigError(f"--output: {output} cannot be written ({error.strerror}). Choose another file.") from error


def as_text(parts: Sequence[ReportPart]) -> str:
    return "".join(f"===== {part.name}\n{part.text}\n" for part in parts)


def as_archive(parts: Sequence[ReportPart], name: str) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for part in parts:
            text = part.text.encode()
            member = tarfile.TarInfo(f"{name}/{part.name}")
            member.size, member.mtime = len(text), int(time.time())
            archive.addfile(member, io.BytesIO(text))
    return data.getvalue()
