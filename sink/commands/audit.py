"""`sink audit`: proves that the table holds what its checkpoints and the log say.

Exit status 0 if every record is there exactly once or none was committed yet, 1 if not. Errors as `sink.audit`.
"""

from __future__ import annotations

import typer

from sink.commands.common import ConfigOption, JsonOption
from sink.config import load
from sink.telemetry.terminal import console, quiet


def audit(
    config: ConfigOption,
    as_json: JsonOption = False,
    log: bool = typer.Option(True, "--log/--no-log", help="Compare with the topics, as far as they go back."),
) -> None:
    """Prove that every record is in the table exactly once."""
    # Imported here: DuckDB and hudi-rs would slow every other command down.
    from sink.audit import TopicAccess
    from sink.audit import audit as audited

    settings = load(config)
    quiet(settings.secrets)
    topics = TopicAccess(settings.bootstrap, settings.kafka_native, settings.topics) if log else None
    report = audited(settings.base_path, settings.name, topics, settings.errors_base_path, settings.storage)
    if as_json:
        typer.echo(report.to_json())
    else:
        report.render(console())
    if not report.held:
        raise typer.Exit(1)
