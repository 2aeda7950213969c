"""`sink audit`: proves that the table holds what its checkpoints and the log say.

Leaves its answer in ZooKeeper, for the workers' metrics, where that is there and can be written.
Exit status 0 if every record is there exactly once or none was committed yet, 1 if not, 2 if a table could not be
audited. Errors as `sink.audit`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import typer
from rich.text import Text

from coordination.errors import ConfigError, SinkError
from coordination.zookeeper.audit_record import AuditAnswer, AuditRecord
from sink.clients.kafka import topics_of
from sink.clients.zookeeper import connected
from sink.commands.common import ConfigOption, JsonOption, SinksOption, several_sinks
from sink.config import Settings
from sink.operations.chosen import Answer, shown, side_by_side
from sink.telemetry.terminal import console

if TYPE_CHECKING:
    from sink.audit.report import Report

FORMAT = 1
AT_ONCE = 2
"""An audit reads whole tables: more of them at once would only take memory from one another."""
RECORD_SECONDS = 3.0


def audit(
    config: ConfigOption,
    sink: SinksOption = None,
    as_json: JsonOption = False,
    log: bool = typer.Option(True, "--log/--no-log", help="Compare with the topics, as far as they go back."),
) -> None:
    """Prove that every record is in the table exactly once. Several sinks are audited side by side."""
    known = several_sinks(config, sink)
    sinks = known.sinks
    if not sinks:
        raise ConfigError(f"{config}: no topic matches yet, so that there is no table to audit")
    if len(sinks) == 1 and not known.misconfigured:
        report = _audited(sinks[0], log)
        typer.echo(report.to_json()) if as_json else report.render(console())
        _record([(sinks[0], report)])
        held = report.held
    else:
        answers = side_by_side(known, lambda settings: _audited(settings, log), AT_ONCE)
        _show_json(answers) if as_json else _show(answers)
        _record([(answer.settings, answer.result) for answer in answers if answer.settings and answer.result])
        held = all(answer.result is None or answer.result.held for answer in answers)
        if held and (failed := [answer for answer in answers if answer.error is not None]):
            names = shown((), [answer.name for answer in failed])
            raise ConfigError(f"{len(failed)} of {len(answers)} sinks could not be audited: {names}")
    if not held:
        raise typer.Exit(1)


def _audited(settings: Settings, log: bool) -> Report:
    # Imported here: DuckDB and hudi-rs would slow every other command down.
    from sink.audit import TopicAccess
    from sink.audit import audit as audited

    topics = TopicAccess(settings.bootstrap, settings.kafka_native, topics_of(settings)) if log else None
    return audited(settings.base_path, settings.name, topics, settings.errors_base_path, settings.storage)


def _show(answers: Sequence[Answer[Report]]) -> None:
    out = console()
    for answer in answers:
        out.print(Text(f"sink {answer.name}", style="bold"))
        if answer.result is not None:
            answer.result.render(out)
        else:
            out.print(Text(f"could not be audited: {answer.error}", style="bold red"), soft_wrap=True)
        out.print()
    good = sum(answer.result is not None and answer.result.held for answer in answers)
    style = "bold green" if good == len(answers) else "bold red"
    out.print(Text(f"{good} of {len(answers)} sinks hold every record exactly once", style=style))


def _show_json(answers: Sequence[Answer[Report]]) -> None:
    sinks = [
        {
            "sink": answer.name,
            "report": None if answer.result is None else json.loads(answer.result.to_json()),
            "error": None if answer.error is None else str(answer.error),
        }
        for answer in answers
    ]
    held = all(answer.result is not None and answer.result.held for answer in answers)
    typer.echo(json.dumps({"format": FORMAT, "held": held, "sinks": sinks}, indent=2))


def _record(audited: Sequence[tuple[Settings, Report]]) -> None:
    """Records the answers, which were printed already: they do not depend on ZooKeeper, which the sinks of a file
    share.
    """
    if not audited:
        return
    # Who audits may not even reach it.
    with suppress(SinkError), connected(audited[0][0], RECORD_SECONDS) as client:
        for settings, report in audited:
            answer = AuditAnswer(report.held, time.time(), report.verdict())
            AuditRecord(client, settings.root_znode).record(answer)
