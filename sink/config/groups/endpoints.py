"""Settings of the source, the target and the name of a sink: Kafka's topics and the table."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Literal

from sink.config.fields import Choice, SettingGroup, setting
from sink.config.values import BasePath, DurationMs, Flag, Name, Servers, TopicNames, TopicRegex

TOPICS = ("kafka.topic.names", "kafka.topic.regex")
"""Exactly one of them selects the topics that land in the table."""


def topics_problem(set_names: Collection[str]) -> str | None:
    """Returns the problem with `set_names`, the set ones of `TOPICS`, or None."""
    if not set_names:
        return f"{TOPICS[0]} is missing. Set it, or {TOPICS[1]}."
    return f"{TOPICS[0]} and {TOPICS[1]} both say which topics land. Keep one." if len(set_names) > 1 else None


class EndpointSettings(SettingGroup):
    bootstrap: Servers = setting(
        "kafka.bootstrap.servers",
        "Kafka brokers to ask first: `host:port,...`.",
        also=("bootstrap.servers", "hoodie.streamer.source.kafka.bootstrap.servers"),
    )
    topics: TopicNames = setting(
        "kafka.topic.names", "Topics that land in the table.", also=("topics",), default=(), same_on_all_workers=True
    )
    topic_regex: TopicRegex | None = setting(
        "kafka.topic.regex",
        "Instead of `kafka.topic.names`: a regular expression (Python's), which the whole name of a topic has to match."
        " All topics that match land in the table, new ones within a minute. With `{topic}`, or `{name}` for a named"
        " group of the expression, in `target.base.path` and others, each topic gets a table of its own.",
        also=("topics.regex",),
        default=None,
        same_on_all_workers=True,
    )
    group_offsets: Flag = setting(
        "kafka.group.offsets",
        "Whether the offsets that have landed are committed to the consumer group `sink-<sink name>`, so that Kafka's"
        " own tools show the lag. After each commit, as far as Kafka takes it; never read back. It needs the right to"
        " READ that group.",
        default=True,
    )
    open_transaction_ms: DurationMs = setting(
        "kafka.open.transaction.limit",
        "After how long an open Kafka transaction, which holds back acknowledged records behind it, makes `/health`"
        " fail. The default is the longest time that brokers by default let a transaction be open"
        " (`transaction.max.timeout.ms`).",
        default=900_000,
        ge=1000,
        le=7 * 86_400_000,
    )
    base_path: BasePath = setting(
        "target.base.path",
        "Where the table is: an absolute path or a URI that every worker can reach.",
        also=("hoodie.base.path",),
        same_on_all_workers=True,
    )
    table_name: Name = setting(
        "target.table.name", "The table's name.", also=("hoodie.table.name",), same_on_all_workers=True
    )
    table_type: Annotated[Literal["copy_on_write", "merge_on_read"], Choice] = setting(
        "target.table.type",
        "`copy_on_write`, or `merge_on_read` for upserts that append to log files, which a compaction merges later"
        " (`services.compaction`).",
        also=("hoodie.table.type", "hoodie.datasource.write.table.type"),
        default="copy_on_write",
        same_on_all_workers=True,
    )
    name: Name = setting(
        "sink.name",
        "Name of the sink: its place in ZooKeeper and in the table's checkpoints. Default: the table's name.",
        also=("name",),
        default_factory=lambda data: data.get("table_name", "sink"),
    )
