"""`sink audit`: proves that the table holds what its checkpoints and the log say.

Leaves its answer in ZooKeeper, for the workers' metrics, where that is there and can be written.
Exit status 0 if every record is there exactly once or none was committed yet, 1 if not. Errors as `sink.audit`.
"""

from __future__ import annotations

import time

import typer

from coordination.errors import SinkError
from coordination.zookeeper.audit_record import AuditAnswer, AuditRecord
from sink.clients.kafka import topics_of
from sink.clients.zookeeper import connected
from sink.commands.common import ConfigOption, JsonOption
from sink.config import Settings, load
from sink.telemetry.terminal import console, quiet

RECORD_SECONDS = 3.0


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
    topics = TopicAccess(settings.bootstrap, settings.kafka_native, topics_of(settings)) if log else None
    report = audited(settings.base_path, settings.name, topics, settings.errors_base_path, settings.storage)
    if as_json:
        typer.echo(report.to_json())
    else:
        report.render(console())
    _record(settings, AuditAnswer(report.held, time.time(), report.verdict()))
    if not report.held:
        raise typer.Exit(1)


def _record(settings: Settings, answer: AuditAnswer) -> None:
    """The answer itself was printed already: it does not depend on ZooKeeper."""
    try:
        with connected(settings, RECORD_SECONDS) as client:
            AuditRecord(client, settings.root_znode).record(answer)
    except SinkError:
        return  # who audits may not even reach ZooKeeper
