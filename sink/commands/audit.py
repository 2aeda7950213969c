"""`sink audit`: proves that the table holds the records of its checkpoints and of the log.

Records its answer in ZooKeeper for the workers' metrics, if ZooKeeper can be reached and written. Exit status 0 if
every record is there exactly once or none was committed yet, 1 if not, 2 if a table could not be audited, or not all of
its contents be compared. Errors: those of `sink.commands.auditor` and `sink.storage`.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from coordination.errors import ConfigError, OtherVersion, SinkError
from coordination.zookeeper.keeper import Keeper
from coordination.zookeeper.records import AuditAnswer, AuditRecord
from sink.clients.kafka.log import topics_of
from sink.clients.zookeeper.session import connected
from sink.commands.auditor import sink_errors
from sink.commands.common import ConfigOption, JsonOption, SinksOption, several_sinks
from sink.commands.progress import shown_progress
from sink.commands.times import parse_time
from sink.config import Settings
from sink.operations.chosen import SinkResult, listed_names, side_by_side
from sink.telemetry.terminal import console

if TYPE_CHECKING:
    from sink.audit.coverage import Coverage
    from sink.audit.progress import Progress
    from sink.audit.report import Report

FORMAT = 1
MAX_PARALLEL_AUDITS = 2
"""An audit reads whole tables: more parallel audits would only compete for memory."""
RECORD_SECONDS = 3.0
PartitionsOption = Annotated[
    list[str] | None, typer.Option(help="TOPIC:PARTITION whose log is compared alone. May be repeated.")
]
_PARTITION = re.compile(r"(?P<topic>.+):(?P<partition>\d{1,9})\Z")
_SHARE = re.compile(r"(?P<percent>\d{1,3}(\.\d{1,6})?)%\Z")


def audit(
    config: ConfigOption,
    sink: SinksOption = None,
    as_json: JsonOption = False,
    log: bool = typer.Option(True, "--log/--no-log", help="Compare with the topics, as far as they go back."),
    content: bool = typer.Option(False, "--content", help="Decode the records, and compare each cell with the table."),
    since: str | None = typer.Option(None, help="Compare the log of commits from this time on alone (ISO 8601)."),
    partition: PartitionsOption = None,
    readers: str = typer.Option("", help="hudi-rs, spark or both: compare the rows that they return with the files."),
    sample: str = typer.Option("100%", help="The share of the log whose contents are compared, such as 5%."),
) -> None:
    """Prove that every record is in the table exactly once. Several sinks are audited side by side."""
    coverage = _coverage(since, partition or (), sample)
    asked_readers = _readers(readers)
    if not log and (content or str(coverage)):
        raise ConfigError("--content, --since, --partition and --sample are about the log: leave --no-log out")
    if coverage.sample < 1.0 and not content:
        raise ConfigError("--sample is a share of the contents: add --content")
    chosen_sinks = several_sinks(config, sink)
    sinks = chosen_sinks.sinks
    if not sinks:
        raise ConfigError(f"{config}: no topic matches yet, so there is no table to audit. Create a matching topic.")
    if len(sinks) == 1 and not chosen_sinks.misconfigured:
        with shown_progress(sinks[0].name) as progress:
            report = audit_sink(sinks[0], log, content, coverage, progress, asked_readers)
        typer.echo(report.to_json()) if as_json else report.render(console())
        record([(sinks[0], report)], coverage)
        reports = [report]
    else:

        def audited(settings: Settings) -> Report:
            with shown_progress(settings.name, False) as progress:
                return audit_sink(settings, log, content, coverage, progress, asked_readers)

        answers = side_by_side(chosen_sinks, audited, MAX_PARALLEL_AUDITS)
        _print_json(answers) if as_json else _print_reports(answers)
        record([(answer.settings, answer.result) for answer in answers if answer.settings and answer.result], coverage)
        reports = [answer.result for answer in answers if answer.result is not None]
        failed = [answer for answer in answers if answer.error is not None]
        if failed and not any(report.failures for report in reports):
            names = listed_names((), [answer.name for answer in failed])
            raise ConfigError(f"{len(failed)} of {len(answers)} sinks could not be audited: {names}")
    if any(report.failures for report in reports):
        raise typer.Exit(1)
    if not all(report.held for report in reports):
        raise typer.Exit(2)


def _coverage(since: str | None, partitions: Sequence[str], sample: str) -> Coverage:
    # Imported here, as below.
    from sink.audit.checkpoints import LogPartition
    from sink.audit.coverage import Coverage

    chosen = set()
    for text in partitions:
        match = _PARTITION.match(text)
        if match is None:
            raise ConfigError(f"--partition {text!r} is not TOPIC:PARTITION, like orders:3")
        chosen.add(LogPartition(match["topic"], int(match["partition"])))
    match = _SHARE.match(sample)
    share = float(match["percent"]) / 100 if match else 0.0
    if not 0.0 < share <= 1.0:
        raise ConfigError(f"--sample {sample!r} is not a share of more than 0% and at most 100%, like 5%")
    instant = "" if since is None else f"{parse_time('--since', since):%Y%m%d%H%M%S}000"
    return Coverage(instant, frozenset(chosen), share)


def _readers(text: str) -> Sequence[str]:
    from sink.audit.readers import READERS

    names = [name.strip() for name in text.split(",") if name.strip()]
    if unknown := [name for name in names if name not in READERS]:
        raise ConfigError(f"--readers names {unknown[0]!r}. There are {', '.join(READERS)}.")
    return names


def audit_sink(
    settings: Settings,
    log: bool,
    content: bool,
    coverage: Coverage,
    progress: Progress,
    readers: Sequence[str] = (),
) -> Report:
    """Audits one sink's table. Raises SinkError."""
    # Imported here: DuckDB and hudi-rs would slow every other command down.
    from sink.audit.audit import audit as run_audit
    from sink.audit.log import TopicAccess
    from sink.commands.spark_rows import SparkTable

    topics = (
        TopicAccess(
            settings.bootstrap,
            settings.kafka_native_consumer,
            topics_of(settings.kafka_native, settings.topics, settings.topic_pattern),
        )
        if log
        else None
    )
    with sink_errors(), closing(SparkTable(settings)) as spark:
        return run_audit(
            settings.base_path,
            settings.name,
            topics,
            settings.errors_base_path,
            settings.storage,
            settings.key_is_global,
            content,
            coverage,
            progress,
            spark,
            readers,
        )


def _print_reports(answers: Sequence[SinkResult[Report]]) -> None:
    out = console()
    for answer in answers:
        out.print(Text(f"sink {answer.name}", style="bold"))
        if answer.result is not None:
            answer.result.render(out)
        else:
            out.print(Text(f"could not be audited: {answer.error}", style="bold red"), soft_wrap=True)
        out.print()
    proven = sum(answer.result is not None and answer.result.held for answer in answers)
    style = "bold green" if proven == len(answers) else "bold red"
    out.print(Text(f"{proven} of {len(answers)} sinks hold every record exactly once", style=style))


def _print_json(answers: Sequence[SinkResult[Report]]) -> None:
    sinks = [
        {
            "sink": answer.name,
            "report": None if answer.result is None else json.loads(answer.result.to_json()),
            "error": None if answer.error is None else str(answer.error),
        }
        for answer in answers
    ]
    is_proven = all(answer.result is not None and answer.result.held for answer in answers)
    typer.echo(json.dumps({"format": FORMAT, "held": is_proven, "sinks": sinks}, indent=2))


def record(reports: Sequence[tuple[Settings, Report]], coverage: Coverage) -> None:
    """Records the answers in ZooKeeper, which the sinks of a file share. Ignores that it may be away. Writes
    nothing into a tree of another version.
    """
    if not reports:
        return
    # The host of an audit may have no access to ZooKeeper.
    with suppress(SinkError), connected(reports[0][0].ensemble, RECORD_SECONDS) as client:
        for settings, report in reports:
            records = AuditRecord(client, settings.root_znode)
            try:
                Keeper(client, settings.root_znode, lambda: None).require_own_version()
                records.record(_answer(report, coverage, records.last()))
            except OtherVersion as error:
                typer.echo(f"sink: the answer is not recorded: {error}", err=True)


def _answer(report: Report, coverage: Coverage, last: AuditAnswer | None) -> AuditAnswer:
    """Returns the record of a report. Only contents that begin where the last ones ended, or earlier, go on from them;
    those that did not hold are compared again next time, so that nothing hides them."""
    content, now = report.content, time.time()
    through, contents = (last.through, last.contents) if last else ("", 0.0)
    if (
        content is not None
        and coverage.is_suffix
        and (not coverage.since or (through and coverage.since <= after(through)))
    ):
        contents = now
        through = report.through if report.held else through if coverage.since else ""
    compared = content.compared if content else 0
    return AuditAnswer(report.held, now, report.verdict(), report.rows, compared, through, contents)


def after(instant: str) -> str:
    """Returns the next instant of Hudi."""
    return f"{int(instant) + 1}"
