"""`sink status`: what needs doing, who is in the fleet, where every partition stands, what is open, what was done last.

Exit status 0 while the sinks run, 1 when one has stopped itself (halt) or cannot be used. Errors as
`sink.operations.status`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING

import typer
from kazoo.client import KazooClient
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from coordination.errors import ConfigError, Corrupt, Unavailable
from coordination.zookeeper.keeper import Keeper
from coordination.zookeeper.table_service_lock import TableServiceRun
from sink.clients.kafka import Log
from sink.clients.zookeeper import connected
from sink.commands.common import ConfigOption, JsonOption, SinksOption, several_sinks
from sink.commands.needs import Look, look_at, needs, new_trend, overview, unread, unusable
from sink.config import Settings
from sink.operations.control import described
from sink.operations.health import last_commit
from sink.operations.status import FORMAT, CatalogStatus, EndedStatus, PartitionStatus, Status, collect
from sink.telemetry.terminal import console

if TYPE_CHECKING:
    from sink.operations.chosen import KnownSinks

WATCH_SECONDS = 1.0
SHOWN_PARTITIONS = 40
STOPPED = ("halted", "refused")
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
    known = several_sinks(config, sink)
    sinks = known.sinks
    for problem in known.problems:
        typer.echo(f"no table: {problem}", err=True)
    if not sinks:
        raise ConfigError(f"{config}: no topic matches yet, so that there is no sink")
    with connected(sinks[0]) as client:
        looker = _Looker(client, known, lag)
        if watch:
            _watch(looker, as_json)
            return
        looks = looker.look()
    if as_json:
        typer.echo(json.dumps(_document(looks), indent=2))
    else:
        console().print(_shown(looks))
    if any(reason.kind in STOPPED for look in looks for reason in look.judgement.reasons):
        raise typer.Exit(1)


class _Looker:
    """Reads sinks again and again; what did not change is not read twice."""

    def __init__(self, client: KazooClient, known: KnownSinks, lag: bool) -> None:
        self._sinks = sinks = known.sinks
        self._unusable = [unusable(name, reason) for name, reason in known.misconfigured.items()]
        self._lag = lag
        self._logs: dict[tuple[tuple[str, str], ...], Log] = {}
        self._trends = {settings.name: new_trend(settings) for settings in sinks}
        self._keepers = {settings.name: Keeper(client, settings.root_znode, lambda: None) for settings in sinks}
        for keeper in self._keepers.values():
            client.add_listener(keeper.session_changed)

    def look(self) -> list[Look]:
        """Looks at all sinks. Raises Unavailable; of several sinks, one that cannot be read is told in its line."""
        return [*map(self._look, self._sinks), *self._unusable]

    def _look(self, settings: Settings) -> Look:
        try:
            keeper, trend = self._keepers[settings.name], self._trends[settings.name]
            seen = collect(settings, keeper, self._log(settings))
        except Corrupt as error:
            if len(self._sinks) == 1:
                raise
            return unread(settings, str(error))
        trend.look(seen.view.states, seen.log, last_commit(seen.view), time.time())
        return look_at(settings, seen.view, seen.status, trend)

    def _log(self, settings: Settings) -> Log | None:
        native = settings.kafka_native
        return self._logs.setdefault(tuple(sorted(native.items())), Log(native)) if self._lag else None


def _document(looks: Sequence[Look]) -> dict[str, object]:
    return looks[0].to_json() if len(looks) == 1 else {"format": FORMAT, "sinks": [look.to_json() for look in looks]}


def _shown(looks: Sequence[Look]) -> RenderableType:
    if len(looks) == 1 and looks[0].status is not None:
        return Group(*needs(looks), *_parts(looks[0].status))
    return overview(looks, time.time())


def _watch(looker: _Looker, as_json: bool) -> None:
    with Live(console=console(), auto_refresh=False, screen=False) as live:
        while True:
            try:
                looks = looker.look()
            except Unavailable as error:
                document: dict[str, object] = {"error": str(error)}
                shown: RenderableType = Text(f"{error}; looking again", style="red")
            else:
                document, shown = _document(looks), _shown(looks)
            if as_json:
                typer.echo(json.dumps(document))
            else:
                live.update(shown, refresh=True)
            time.sleep(WATCH_SECONDS)


def render(found: Status) -> Group:
    return Group(*_parts(found))


def _parts(found: Status) -> Iterator[RenderableType]:
    yield Text(f"sink {found.sink} at {found.zookeeper}", style="bold")
    if not found.exists:
        yield Text("ZooKeeper has nothing of this sink yet: no worker has ever joined, or it was emptied.")
        return
    coordinator = found.coordinator or "none"
    yield Text(f"epoch {found.epoch}, coordinator {coordinator}, last committed transaction {found.committed}")
    if found.halt is not None:
        halt = found.halt
        place = f"{halt.topic}-{halt.partition}" if halt.topic else ""
        offset = f" offset {halt.offset}" if halt.offset is not None else ""
        yield Text(f"HALTED {_moment(halt.at)} {place}{offset}: {halt.reason}".replace("  ", " "), style="bold red")
        yield Text("Nothing new is planned until `sink reset` clears it.", style="red")
    yield from _requests(found)
    if not found.same_config:
        yield Text("The fleet runs another configuration than the file given here.", style="yellow")
    if found.kafka_error is not None:
        yield Text(f"No lag: {found.kafka_error}", style="yellow")
    yield _members(found)
    yield _partitions(found)
    if found.transactions:
        yield _open(found)
    if found.history:
        yield history_table(found.history)
    if found.services is not None:
        yield _services(found.services)
    if found.catalog is not None:
        yield from _catalog(found.catalog)


def _requests(found: Status) -> Iterator[RenderableType]:
    """Yields operators' requests that are not done yet."""
    if found.paused is not None:
        yield Text(f"PAUSED {described(found.paused)}", style="bold yellow")
        yield Text("Nothing new is planned until `sink resume`.", style="yellow")
    if found.flush_pending:
        yield Text("A flush is under way.")
    if found.switchover is not None:
        yield Text(f"{found.switchover} was asked to let another worker coordinate.")


def _members(found: Status) -> Table:
    table = _table("workers", "worker", "role", "state", "host", "pid>", "version")
    for m in found.members:
        table.add_row(m.worker, m.role, m.state, m.host, str(m.pid), m.version)
    if not found.members:
        table.add_row("none alive", *[""] * 5)
    return table


def _partitions(found: Status) -> Table:
    names = ("partition", "state", "start>", "end>", "committed to>", "log end>", "lag>", "generation>")
    table = _table("partitions", *names)
    for p in _most_behind(found.partitions):
        table.add_row(
            f"{p.topic}-{p.partition}", p.status, f"{p.start:,}", f"{p.end:,}", f"{p.committed:,}",
            _number(p.log_end), _number(p.lag), str(p.generation),
        )  # fmt: skip
    hidden = len(found.partitions) - SHOWN_PARTITIONS
    if hidden > 0:
        table.add_row(f"and {hidden:,} less behind", *[""] * 7)
    table.add_section()
    table.add_row(f"{len(found.partitions):,} in all", "", "", "", "", "", _number(found.lag), "")
    return table


def _most_behind(partitions: tuple[PartitionStatus, ...]) -> tuple[PartitionStatus, ...]:
    if len(partitions) <= SHOWN_PARTITIONS:
        return partitions
    return tuple(sorted(partitions, key=lambda p: -(p.lag or 0))[:SHOWN_PARTITIONS])


def _open(found: Status) -> Table:
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
    table = _table("open transactions", *names)
    for t in found.transactions:
        table.add_row(
            str(t.number), t.phase, f"{t.phase_seconds:.1f} s", f"{t.age_seconds:.1f} s",
            str(t.attempt), str(t.epoch),
            f"{t.offsets:,}", str(t.slices), f"{t.reported} of {t.participants}", t.instant or "",
        )  # fmt: skip
    return table


def history_table(history: Sequence[EndedStatus]) -> Table:
    phases = [phase for phase in PHASES if any(phase in ended.seconds for ended in history)]
    bad = any(ended.errors for ended in history)
    retried = any(ended.attempt > 1 for ended in history)
    names = (
        "number>",
        "outcome",
        *(["batch>", "attempt>"] if retried else []),
        "ended",
        "records>",
        *(["bad>"] if bad else []),
        *(f"{phase}>" for phase in phases),
        "instant",
        "reason",
    )
    table = _table("last transactions", *names)
    for e in history:
        seconds = [f"{e.seconds[phase]:.2f} s" if phase in e.seconds else "" for phase in phases]
        table.add_row(
            str(e.number),
            e.outcome,
            *([str(e.batch), str(e.attempt)] if retried else []),
            _moment(e.ended),
            f"{e.records:,}",
            *([f"{e.errors:,}"] if bad else []),
            *seconds,
            e.instant or "",
            Text(e.reason),
        )
    return table


def _services(run: TableServiceRun) -> Table:
    table = _table(f"table services, {_moment(run.ended)}, by {run.worker}", "service", "took>", "instant", "failed")
    for each in run.services:
        table.add_row(each.name, f"{each.seconds:.2f} s", each.instant, Text(each.reason, style="red"))
    return table


def _catalog(found: CatalogStatus) -> Iterator[Text]:
    if found.synced:
        yield Text(
            f"catalogue {found.catalog}: registered up to instant {found.instant} (transaction {found.committed},"
            f" {found.behind} behind), {_moment(found.synced)}, by {found.worker}"
        )
    else:
        yield Text(f"catalogue {found.catalog}: nothing registered yet")
    if found.failures:
        times = f"failed {found.failures} times in a row" if found.failures > 1 else "failed once"
        yield Text(f"catalogue: {times}, {_moment(found.failed)}, on {found.worker}: {found.reason}", style="red")


def _table(title: str, *names: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for name in names:
        table.add_column(name.rstrip(">"), justify="right" if name.endswith(">") else "left", style="")
    return table


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC") if at else ""
