"""`sink reset`: clears a halt, moves partitions, or forgets ZooKeeper's records. `sink adopt`: begins where Hudi
Streamer or hudi-kafka-connect ended in the table. Both show what they would do, and do it with --yes.

Errors as `sink.operations.reset` and `sink.operations.adoption`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Annotated

import typer
from kazoo.client import KazooClient
from rich.console import Console
from rich.text import Text

from coordination.errors import ConfigError, Corrupt, OtherVersion
from coordination.planning.batches import unfinished_topics
from coordination.state.model import LogView, TopicPartition
from coordination.state.tree import KeeperView
from coordination.zookeeper.keeper import Keeper
from sink.clients.kafka.log import Log, topics_of
from sink.clients.zookeeper.session import connected
from sink.commands.common import ConfigOption, SinkOption, one_sink, text_table
from sink.commands.times import parse_log_time
from sink.config import Settings
from sink.operations.catching_up import positions_at
from sink.operations.log_anchors import find_anchors
from sink.operations.reset import (
    NO_TABLE,
    Position,
    Reset,
    ResetRequest,
    TimelineSnapshot,
    plan_reset,
    with_offsets,
)
from sink.operations.reset_checks import require_no_live_workers, require_same_cluster
from sink.operations.reset_writer import delete_records, live_workers, recorded_paths, write_reset
from sink.telemetry.terminal import console

_OFFSET = re.compile(r"(?P<topic>[A-Za-z0-9._-]+):(?P<partition>\d{1,9})=(?P<offset>\d{1,18})\Z", re.ASCII)
UNCHANGED = "Nothing was changed. Run it again with --yes to do it."


def reset(
    config: ConfigOption,
    to: Annotated[
        str | None,
        typer.Option(
            help="Where partitions go on: earliest, latest, checkpoint, or at the records of a time, as"
            " 2026-11-25T14:30:00Z.",
            show_default=False,
        ),
    ] = None,
    offset: Annotated[
        list[str] | None, typer.Option(help="TOPIC:PARTITION=OFFSET. May be repeated.", show_default=False)
    ] = None,
    topic: Annotated[list[str] | None, typer.Option(help="Only this topic, with --to. May be repeated.")] = None,
    forgets: Annotated[bool, typer.Option("--forget", help="Drop all that ZooKeeper records of the sink.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do it.")] = False,
    sink: SinkOption = None,
) -> None:
    """Clear a halt; move partitions; forget ZooKeeper's records. Shows what it would do, unless told
    --yes.
    """
    offsets = _offsets(offset or ())
    if sum((to is not None, bool(offsets), forgets)) > 1:
        raise ConfigError("--to, --offset and --forget exclude one another. Give one of them.")
    if topic and to is None:
        raise ConfigError("--topic goes with --to. Give --to as well, or name partitions with --offset.")
    position, at = _position(to)
    settings = one_sink(config, sink)
    with connected(settings.ensemble) as client:
        if forgets:
            _forget(settings, client, yes)
        else:
            _reset(settings, client, ResetRequest(position, offsets, tuple(topic or ())), at, yes)


def _position(to: str | None) -> tuple[Position | None, float | None]:
    """Parses a position: its name, or a time in seconds since 1970."""
    if to is None or to in (position.value for position in Position):
        return None if to is None else Position(to), None
    try:
        at = parse_log_time("--to", to).timestamp()
    except ConfigError as error:
        names = ", ".join(position.value for position in Position)
        raise ConfigError(f"{str(error).rstrip('.')}, or one of {names}.") from error
    if at > time.time():
        raise ConfigError(f"--to {to} lies in the future. --to latest leaves out all that is there now.")
    return None, at


def _offsets(texts: Sequence[str]) -> dict[TopicPartition, int]:
    offsets: dict[TopicPartition, int] = {}
    for text in texts:
        match = _OFFSET.match(text)
        if match is None:
            raise ConfigError(f"--offset {text!r} is not TOPIC:PARTITION=OFFSET, like orders:3=12000")
        partition = TopicPartition(match["topic"], int(match["partition"]))
        if partition in offsets:
            raise ConfigError(f"--offset names {partition} twice. Name it once.")
        offsets[partition] = int(match["offset"])
    return offsets


def _reset(settings: Settings, client: KazooClient, request: ResetRequest, at: float | None, yes: bool) -> None:
    out = console()
    view = Keeper(client, settings.root_znode, lambda: None).read()
    log, request = _log(settings, request, at, view)
    table = _snapshot(settings, request)
    if log is not None:
        require_same_cluster(view, table.checkpoint, log)
    planned_reset = plan_reset(view, request, table, log)
    found = find_anchors(settings, planned_reset)
    _print_plan(out, planned_reset)
    if sentence := found.sentence(planned_reset):
        out.print(Text(sentence))
    if planned_reset.is_empty:
        out.print("There is nothing to reset.")
        return
    if not yes:
        out.print(UNCHANGED)
        return
    epoch_floor = table.checkpoint.epoch if table.checkpoint else 0

    def plan(keeper_view: KeeperView) -> Reset:
        return found.applied_to(plan_reset(keeper_view, request, table, log))

    epoch = write_reset(client, settings, epoch_floor, plan)
    out.print(f"Done, as epoch {epoch}. Start the workers again.")


def _snapshot(settings: Settings, request: ResetRequest) -> TimelineSnapshot:
    # Imported here: every command loads this module, and few read tables.
    from sink.operations.table_version import require_own_table
    from sink.operations.timeline_snapshot import read_timeline_snapshot

    if request.moves:
        return read_timeline_snapshot(settings.base_path, settings.name, settings.storage)
    require_own_table(settings)
    return NO_TABLE


def _log(
    settings: Settings, request: ResetRequest, at: float | None, view: KeeperView
) -> tuple[LogView | None, ResetRequest]:
    """Returns the log, if it is needed, and the request with the offsets of the time `at`."""
    if at is None and not request.needs_log:
        return None, request
    with closing(Log(settings.kafka_native)) as log:
        log_view = log.view(settings.topics, settings.topic_pattern)
        if unfinished := unfinished_topics(view.states, {*settings.topics, *(log_view.matching or ())}):
            # Topics that exist and are no longer configured keep their ranges.
            log_view = replace(log_view, deleted=log.view((), optional=unfinished).deleted)
        return log_view, request if at is None else with_offsets(request, positions_at(log, log_view, at))


def _forget(settings: Settings, client: KazooClient, yes: bool) -> None:
    # Imported here: every command loads this module, and few read tables.
    from sink.operations.table_version import require_own_table

    out = console()
    root = settings.root_znode
    require_no_live_workers(live_workers(client, root))
    # No worker of this release could rebuild the tree from such a table.
    require_own_table(settings)
    if not recorded_paths(client, root):
        out.print(f"ZooKeeper has nothing of sink {settings.name}: there is nothing to forget.")
        return
    out.print(
        Text(
            f"Forgets {_content(client, root)}, the history and any halt of sink {settings.name} at {root}. The next"
            " worker goes on from the table's checkpoint or, without one, at auto.offset.reset"
            f" ({settings.offset_reset}). Instants that were left pending are rolled back then."
        )
    )
    if not yes:
        out.print(UNCHANGED)
        return
    delete_records(client, root)
    out.print("Done. Start the workers again.")


def _content(client: KazooClient, root: str) -> str:
    try:
        view = Keeper(client, root, lambda: None).read()
    except (Corrupt, OtherVersion) as error:
        return f"what cannot be read ({error})"
    return f"{len(view.states):,} partition states, {len(view.transactions):,} open transactions"


def _print_plan(out: Console, planned_reset: Reset) -> None:
    if planned_reset.halt is not None:
        out.print(Text(f"Clears the halt: {planned_reset.halt.reason}"))
    for transaction in planned_reset.aborted:
        header = transaction.header
        sentence = f"Aborts transaction {header.number} ({header.phase.value}). A coordinator will roll it back."
        out.print(Text(sentence))
    if planned_reset.moves:
        rows = [
            (
                str(move.source),
                "" if move.committed_end is None else f"{move.committed_end:,}",
                f"{move.after.end:,}",
                str(move.after.generation),
                move.effect,
            )
            for move in planned_reset.moves
        ]
        out.print(text_table(("partition", "committed to>", "goes on at>", "generation>", "effect"), rows))
    if following_count := len(planned_reset.changed) - len(planned_reset.moves):
        out.print(Text(f"Others go on where the table ends, which ZooKeeper is behind: {following_count:,}."))


def adopt(
    config: ConfigOption,
    sink: SinkOption = None,
    topic: Annotated[
        str | None,
        typer.Option(help="Whose offsets they are, where the commit does not say it.", show_default=False),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do it.")] = False,
) -> None:
    """Begin at the offsets that Hudi Streamer or hudi-kafka-connect left in the table. Shows them first, unless told
    --yes.
    """
    settings = one_sink(config, sink)
    with connected(settings.ensemble) as client:
        _adopt(settings, client, topic, yes)


def _adopt(settings: Settings, client: KazooClient, topic: str | None, yes: bool) -> None:
    # Imported here: reading the table needs Arrow, which `sink --help` can do without.
    from sink.operations import adoption
    from sink.operations.timeline_snapshot import read_timeline_snapshot

    out, root = console(), settings.root_znode
    Keeper(client, root, lambda: None).require_own_version()
    require_no_live_workers(live_workers(client, root))
    adoption.require_current_version(settings.base_path, settings.storage)
    table = read_timeline_snapshot(settings.base_path, settings.name, settings.storage)
    foreign_offsets = adoption.read_foreign_offsets(settings.base_path, settings.storage)
    topics = topics_of(settings.kafka_native, settings.topics, settings.topic_pattern)
    adoption.require_not_begun(settings.name, table, foreign_offsets, topics)
    commit_offsets = adoption.choose(settings.base_path, foreign_offsets)
    offsets = adoption.offsets_of(commit_offsets, topics, topic)
    with closing(Log(settings.kafka_native)) as reader:
        log = reader.view(settings.topics, settings.topic_pattern)

    view = Keeper(client, root, lambda: None).read()
    require_same_cluster(view, table.checkpoint, log)
    planned = adoption.adopt(view, settings.name, offsets, table, log)
    found = find_anchors(settings, planned)

    def plan_adoption(keeper_view: KeeperView) -> Reset:
        return found.applied_to(adoption.adopt(keeper_view, settings.name, offsets, table, log))

    out.print(
        Text(f"Commit {commit_offsets.instant} has offsets of {commit_offsets.tool.value} ({commit_offsets.key}):")
    )
    _print_offsets(out, offsets, log)
    if sentence := found.sentence(planned):
        out.print(Text(sentence))
    _warn(out, settings, offsets, log, table, commit_offsets.instant)
    if not yes:
        out.print(UNCHANGED)
        return
    epoch = write_reset(client, settings, 0, plan_adoption)
    out.print(f"Done, as epoch {epoch}. Start the workers. The job that wrote the table before must never run again.")


def _print_offsets(out: Console, offsets: Mapping[TopicPartition, int], log: LogView) -> None:
    ranges = ((partition, offset, log.partitions[partition]) for partition, offset in sorted(offsets.items()))
    rows = [
        (str(partition), f"{offset:,}", f"{log_range.start:,}", f"{log_range.end:,}", f"{log_range.end - offset:,}")
        for partition, offset, log_range in ranges
    ]
    out.print(text_table(("partition", "begins at>", "log from>", "log to>", "to be read>"), rows))


def _warn(
    out: Console,
    settings: Settings,
    offsets: Mapping[TopicPartition, int],
    log: LogView,
    table: TimelineSnapshot,
    instant: str,
) -> None:
    adopted_topics = {partition.topic for partition in offsets}
    for partition in sorted(log.partitions.keys() - offsets.keys()):
        start = "earliest" if partition.topic in adopted_topics else f"{settings.offset_reset} (auto.offset.reset)"
        out.print(Text(f"{partition} is not in that commit: it begins at {start}.", style="yellow"))
    if pending := sorted(pending_instant for pending_instant in table.pending if pending_instant > instant):
        out.print(
            Text(
                f"Begun since and not completed: {', '.join(pending)}. Make sure that the job which wrote the table has"
                " ended.",
                style="yellow",
            )
        )
