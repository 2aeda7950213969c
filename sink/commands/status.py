"""`sink status`: shows what needs doing, the workers, every partition's offsets, open and ended transactions.
`sink history`: shows the transactions that have ended, with the seconds of their phases and the reasons of aborts.

Exit status of `sink status`: 0 while the sinks run, 1 when a sink has halted or cannot be used. Errors as
`sink.operations.status`.
"""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Annotated

import typer
from kazoo.client import KazooClient
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from coordination.errors import ConfigError, Corrupt, Unavailable, in_sentences
from coordination.state.model import Phase
from coordination.state.tree import HISTORY
from coordination.zookeeper.keeper import Keeper
from coordination.zookeeper.table_service_lock import TableServiceRun
from sink.clients.zookeeper.session import connected
from sink.commands.common import ConfigOption, JsonOption, SinkOption, SinksOption, one_sink, several_sinks, text_table
from sink.commands.needs import SinkReport, needs, overview, report_on, unread
from sink.operations.chosen import KnownSinks
from sink.operations.control import describe_request
from sink.operations.health import moment
from sink.operations.many_statuses import ManyStatuses, SinkLook
from sink.operations.observed_sink import observed_sink
from sink.operations.status import FORMAT, CatalogStatus, EndedStatus, PartitionStatus, Status, ended_status
from sink.telemetry.backlog import Trend
from sink.telemetry.terminal import console

WATCH_SECONDS = 1.0
LEAST_PAUSE_SECONDS = 0.1
SHOWN_PARTITIONS = 40
STOPPED = ("halted", "refused", "other-version")
PHASES = ("begin", "write", "commit", "settle", "roll back")


def status(
    config: ConfigOption,
    sink: SinksOption = None,
    watch: bool = typer.Option(False, "--watch", "-w", help="Keep looking, once a second."),
    as_json: JsonOption = False,
    lag: bool = typer.Option(True, "--lag/--no-lag", help="Ask Kafka for the ends of the logs."),
) -> None:
    """Show what needs doing first; then members, coordinator, partitions with their lag, open and last transactions.
    Of several sinks, a line each; with --sink NAME one in full.
    """
    chosen_sinks = several_sinks(config, sink)
    sinks = chosen_sinks.sinks
    for problem in chosen_sinks.problems:
        typer.echo(f"no table: {problem}", err=True)
    if not sinks:
        raise ConfigError(f"{config}: no topic matches yet, so there is no sink. Create a matching topic.")
    with connected(sinks[0].ensemble) as client:
        reader = _StatusReader(client, chosen_sinks, lag)
        if watch:
            _watch(reader, as_json)
            return
        # What is read is kept until the end: looking for garbage takes a tenth of the time for 300 sinks.
        gc.disable()
        reports = reader.read()
    if as_json:
        # An indent takes Python's slow encoder: half a second for 300 sinks.
        typer.echo(json.dumps(_document(reports), indent=2 if len(reports) == 1 else None))
    else:
        console().print(_rendered(reports))
    if any(reason.kind in STOPPED for report in reports for reason in report.judgement.reasons):
        raise typer.Exit(1)


class _StatusReader:
    """Reads sinks repeatedly, and follows their trends."""

    def __init__(self, client: KazooClient, chosen_sinks: KnownSinks, lag: bool) -> None:
        sinks = [observed_sink(settings) for settings in chosen_sinks.sinks]
        self._statuses = ManyStatuses(client, sinks, lag)
        self._is_one = len(chosen_sinks.sinks) == 1
        self._unusable = [unread(name, "refused", reason) for name, reason in chosen_sinks.misconfigured.items()]
        self._trends = {sink.name: Trend(sink.normal_wait) for sink in sinks}

    def read(self) -> list[SinkReport]:
        """Looks at all sinks. Raises Unavailable. If several sinks are read, an unreadable one says so in its line."""
        return [*map(self._report, self._statuses.read()), *self._unusable]

    def _report(self, look: SinkLook) -> SinkReport:
        sink, error, reading = look.sink, look.error, look.reading
        if reading is None or error is not None:
            if self._is_one and error is not None:
                raise error
            return unread(sink.name, "znode" if isinstance(error, Corrupt) else "other-version", str(error))
        trend = self._trends[sink.name]
        trend.observe(reading.view, reading.log, time.time(), look.begun or {})
        return report_on(sink, reading.view, reading.status, trend)


def _document(reports: Sequence[SinkReport]) -> dict[str, object]:
    if len(reports) == 1:
        return reports[0].to_json()
    return {"format": FORMAT, "sinks": [report.to_json() for report in reports]}


def _rendered(reports: Sequence[SinkReport]) -> RenderableType:
    if len(reports) == 1 and reports[0].status is not None:
        return Group(*needs(reports), *_parts(reports[0].status))
    return overview(reports, time.time())


def _watch(reader: _StatusReader, as_json: bool) -> None:
    with Live(console=console(), auto_refresh=False, screen=False) as live:
        while True:
            began = time.monotonic()
            try:
                reports = reader.read()
            except Unavailable as error:
                document: dict[str, object] = {"error": str(error)}
                output: RenderableType = Text(in_sentences(str(error), "Looking again."), style="red")
            else:
                document, output = _document(reports), _rendered(reports)
            if as_json:
                typer.echo(json.dumps(document))
            else:
                live.update(output, refresh=True)
            time.sleep(max(LEAST_PAUSE_SECONDS, began + WATCH_SECONDS - time.monotonic()))


def _parts(sink_status: Status) -> Iterator[RenderableType]:
    yield Text(f"sink {sink_status.sink} at {sink_status.zookeeper}", style="bold")
    if not sink_status.exists:
        yield Text("ZooKeeper has nothing of this sink yet: no worker has ever joined, or it was emptied.")
        return
    coordinator = sink_status.coordinator or "none"
    yield Text(
        f"epoch {sink_status.epoch}, coordinator {coordinator}, last committed transaction {sink_status.committed}"
    )
    if sink_status.halt is not None:
        halt = sink_status.halt
        partition = f"{halt.topic}-{halt.partition}" if halt.topic else ""
        offset = f" offset {halt.offset}" if halt.offset is not None else ""
        yield Text(f"HALTED {_moment(halt.at)} {partition}{offset}: {halt.reason}".replace("  ", " "), style="bold red")
        yield Text("Nothing new is planned until `sink reset` clears it.", style="red")
    yield from _requests(sink_status)
    if not sink_status.same_config:
        yield Text("The fleet runs another configuration than the file given here.", style="yellow")
    if sink_status.kafka_error is not None:
        yield Text(f"No lag: {sink_status.kafka_error}", style="yellow")
    yield _members(sink_status)
    yield _partitions(sink_status)
    if sink_status.transactions:
        yield _open(sink_status)
    if sink_status.history:
        yield history_table(sink_status.history)
    if sink_status.services is not None:
        yield from _services(sink_status.services)
    if sink_status.audit is not None:
        audit = sink_status.audit
        yield Text(f"audit, {_moment(audit.ended)}: {audit.summary}", style="" if audit.held else "red")
    if sink_status.catalog is not None:
        yield from _catalog(sink_status.catalog)


def _requests(sink_status: Status) -> Iterator[RenderableType]:
    """Yields operators' requests that are still pending."""
    if sink_status.paused is not None:
        yield Text(f"PAUSED {describe_request(sink_status.paused)}", style="bold yellow")
        yield Text("Nothing new is planned until `sink resume`.", style="yellow")
    if sink_status.flush_pending:
        yield Text("A flush is under way.")
    if sink_status.switchover is not None:
        yield Text(f"{sink_status.switchover} was asked to let another worker coordinate.")


def _members(sink_status: Status) -> Table:
    rows = [
        (member.worker, member.role, member.state, member.host, str(member.pid), member.version)
        for member in sink_status.members
    ]
    names = ("worker", "role", "state", "host", "pid>", "version")
    return text_table(names, rows or [("none alive",)], "workers")


def _partitions(sink_status: Status) -> Table:
    holds_back = ["held back>"] if any(partition.held_back for partition in sink_status.partitions) else []
    names = ("partition", "state", "start>", "end>", "committed to>", "log end>", *holds_back, "lag>", "generation>")
    rows = [
        (
            f"{partition.topic}-{partition.partition}",
            partition.status,
            f"{partition.start:,}",
            f"{partition.end:,}",
            f"{partition.committed:,}",
            _number(partition.log_end),
            *(_number(partition.held_back) for _ in holds_back),
            _number(partition.lag),
            str(partition.generation),
        )
        for partition in _most_behind(sink_status.partitions)
    ]
    table = text_table(names, rows, "partitions")
    hidden = len(sink_status.partitions) - SHOWN_PARTITIONS
    if hidden > 0:
        table.add_row(f"and {hidden:,} less behind")
    table.add_section()
    table.add_row(f"{len(sink_status.partitions):,} in all", *[""] * (len(names) - 3), _number(sink_status.lag))
    return table


def _most_behind(partitions: tuple[PartitionStatus, ...]) -> tuple[PartitionStatus, ...]:
    if len(partitions) <= SHOWN_PARTITIONS:
        return partitions
    return tuple(sorted(partitions, key=lambda partition: -(partition.lag or 0))[:SHOWN_PARTITIONS])


def _open(sink_status: Status) -> Table:
    names = (
        "number>",
        "phase",
        "in it>",
        "age>",
        "attempt>",
        "epoch>",
        "offsets>",
        "slices>",
        "reported>",
        "instant",
    )
    rows = [
        (
            str(transaction.number),
            transaction.phase,
            f"{transaction.phase_seconds:.1f} s",
            f"{transaction.age_seconds:.1f} s",
            str(transaction.attempt),
            str(transaction.epoch),
            f"{transaction.offsets:,}",
            str(transaction.slices),
            f"{transaction.reported} of {transaction.participants}",
            transaction.instant or "",
        )
        for transaction in sink_status.transactions
    ]
    return text_table(names, rows, "open transactions")


def history_table(history: Sequence[EndedStatus]) -> Table:
    phases = [phase for phase in PHASES if any(phase in ended.seconds for ended in history)]
    has_bad_records = any(ended.errors for ended in history)
    has_retries = any(ended.attempt > 1 for ended in history)
    names = (
        "number>",
        "outcome",
        *(["batch>", "attempt>"] if has_retries else []),
        "ended",
        "records>",
        *(["bad>"] if has_bad_records else []),
        *(f"{phase}>" for phase in phases),
        "instant",
        "reason",
    )
    rows: list[Sequence[RenderableType]] = [
        (
            str(transaction.number),
            transaction.outcome,
            *([str(transaction.batch), str(transaction.attempt)] if has_retries else []),
            _moment(transaction.ended),
            f"{transaction.records:,}",
            *([f"{transaction.errors:,}"] if has_bad_records else []),
            *(f"{transaction.seconds[phase]:.2f} s" if phase in transaction.seconds else "" for phase in phases),
            transaction.instant or "",
            Text(transaction.reason),
        )
        for transaction in history
    ]
    return text_table(names, rows, "last transactions")


def _services(run: TableServiceRun) -> Iterator[RenderableType]:
    if run.services:
        rows = [
            (
                service.name,
                f"{service.seconds:.2f} s",
                service.instant,
                Text(service.reason, style="red"),
                _moment(service.since) if service.since else "",
            )
            for service in run.services
        ]
        title = f"table services, {_moment(run.ended)}, by {run.worker}" if run.ended else "table services"
        yield text_table(("service", "took>", "instant", "failed", "due since"), rows, title)
    if run.due:
        yield Text(f"A run of the table services has been due since {_moment(run.due)}, and has not ended.")


def _catalog(catalog: CatalogStatus) -> Iterator[Text]:
    if catalog.synced:
        yield Text(
            f"catalogue {catalog.catalog}: registered up to instant {catalog.instant} (transaction {catalog.committed},"
            f" {catalog.behind} behind), {_moment(catalog.synced)}, by {catalog.worker}"
        )
    else:
        yield Text(f"catalogue {catalog.catalog}: nothing registered yet")
    if catalog.failures:
        times = f"failed {catalog.failures} times in a row" if catalog.failures > 1 else "failed once"
        yield Text(f"catalogue: {times}, {_moment(catalog.failed)}, on {catalog.worker}: {catalog.reason}", style="red")


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _moment(at: float) -> str:
    return moment(at) if at else ""


def history(
    config: ConfigOption,
    sink: SinkOption = None,
    limit: Annotated[int, typer.Option(help="How many, newest first.", min=1, max=HISTORY)] = HISTORY,
    aborted: Annotated[bool, typer.Option("--aborted", help="Only those that were aborted.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the last transactions: how they ended, how long each phase took, why they were aborted."""
    settings = one_sink(config, sink)
    with connected(settings.ensemble) as client:
        ledger = Keeper(client, settings.root_znode, lambda: None).read().ledger
    newest_first = (ended_status(summary) for summary in reversed(ledger.history))
    transactions = [ended for ended in newest_first if not aborted or ended.outcome == Phase.ABORTED.value][:limit]
    if as_json:
        typer.echo(json.dumps([asdict(transaction) for transaction in transactions], indent=2))
    elif transactions:
        console().print(history_table(transactions))
    else:
        typer.echo(f"sink {settings.name}: no transaction has {'been aborted' if aborted else 'ended'} yet")
