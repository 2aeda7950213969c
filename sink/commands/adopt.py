"""`sink adopt`: begins where Hudi Streamer or hudi-kafka-connect ended in the table. Shows the offsets first, adopts
them with --yes.

Errors as `sink.operations.adoption`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Annotated

import typer
from kazoo.client import KazooClient
from rich.console import Console
from rich.text import Text

from coordination.state.model import LogView, TopicPartition
from coordination.state.tree import KeeperView
from coordination.zookeeper.keeper import Keeper
from sink.clients.kafka import Log, topics_of
from sink.clients.zookeeper import connected
from sink.commands.common import ConfigOption, SinkOption, one_sink, text_table
from sink.commands.reset import UNCHANGED
from sink.config import Settings
from sink.operations.reset import Reset, TimelineSnapshot
from sink.operations.reset_checks import require_no_live_workers
from sink.operations.reset_writer import workers, write
from sink.telemetry.terminal import console


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
    with connected(settings) as client:
        _adopt(settings, client, topic, yes)


def _adopt(settings: Settings, client: KazooClient, topic: str | None, yes: bool) -> None:
    # Imported here: reading the table needs Arrow, which `sink --help` can do without.
    from sink.operations import adoption
    from sink.operations.timeline_snapshot import read_timeline_snapshot

    out, root = console(), settings.root_znode
    require_no_live_workers(workers(client, root))
    adoption.require_current_version(settings.base_path, settings.storage)
    table = read_timeline_snapshot(settings.base_path, settings.name, settings.storage)
    foreign_offsets = adoption.read_foreign_offsets(settings.base_path, settings.storage)
    topics = topics_of(settings)
    adoption.require_not_begun(settings.name, table, foreign_offsets, topics)
    commit_offsets = adoption.choose(settings.base_path, foreign_offsets)
    offsets = adoption.offsets_of(commit_offsets, topics, topic)
    with closing(Log(settings.kafka_native)) as reader:
        log = reader.view(settings.topics, settings.topic_pattern)

    def plan_adoption(keeper_view: KeeperView) -> Reset:
        return adoption.adopt(keeper_view, settings.name, offsets, table, log)

    plan_adoption(Keeper(client, root, lambda: None).read())
    out.print(
        Text(f"Commit {commit_offsets.instant} has offsets of {commit_offsets.tool.value} ({commit_offsets.key}):")
    )
    _print_offsets(out, offsets, log)
    _warn(out, settings, offsets, log, table, commit_offsets.instant)
    if not yes:
        out.print(UNCHANGED)
        return
    epoch = write(client, settings, 0, plan_adoption)
    out.print(f"Done, as epoch {epoch}. Start the workers; the job that wrote the table before must never run again.")


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
