"""Settings that name a sink, the Kafka topics that it reads, and the Hudi table that it writes."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Literal

from sink.config.fields import Choice, SettingGroup, setting
from sink.config.values import BasePath, DurationMs, Flag, Name, Servers, TopicNames, TopicRegex

TOPIC_SETTINGS = ("kafka.topic.names", "kafka.topic.regex")
"""A sink has exactly one of these settings. It selects the topics whose records land in the table."""


def topic_settings_problem(given: Collection[str]) -> str | None:
    """Returns an error unless exactly one of `TOPIC_SETTINGS` is given, else None."""
    names, regex = TOPIC_SETTINGS
    if not given:
        return f"{names} is missing. Set it, or {regex}."
    return f"{names} and {regex} both say which topics land. Keep one." if len(given) > 1 else None


class EndpointSettings(SettingGroup):
    bootstrap: Servers = setting(
        "kafka.bootstrap.servers",
        "Kafka brokers from which the client learns all others: `host:port,...`.",
        also=("bootstrap.servers", "hoodie.streamer.source.kafka.bootstrap.servers"),
    )
    topics: TopicNames = setting(
        "kafka.topic.names", "Topics that land in the table.", also=("topics",), default=(), same_on_all_workers=True
    )
    topic_regex: TopicRegex | None = setting(
        "kafka.topic.regex",
        "Instead of `kafka.topic.names`: a Python regular expression, which has to match the whole name of a topic."
        " All topics that match land in the table. A new topic is found within a minute. If `target.base.path` or"
        " another setting has `{topic}` in it, or `{name}` for a named group of the expression, each topic gets a sink"
        " and a table of its own.",
        also=("topics.regex",),
        default=None,
        same_on_all_workers=True,
    )
    group_offsets: Flag = setting(
        "kafka.group.offsets",
        "Whether the sink commits the offsets that have landed to the consumer group `sink-<sink name>`, so that"
        " Kafka's own tools show the lag. It does so after each commit to the table. If Kafka refuses, the sink warns"
        " and goes on, because it never reads these offsets. The Kafka user needs READ on that group.",
        default=True,
    )
    open_transaction_ms: DurationMs = setting(
        "kafka.open.transaction.limit",
        "How long a producer's Kafka transaction may be open before `/health` fails. Until it ends, the sink cannot"
        " read the records behind it in its partitions. The default is that of the brokers'"
        " `transaction.max.timeout.ms`.",
        default=900_000,
        ge=1000,
        le=7 * 86_400_000,
    )
    base_path: BasePath = setting(
        "target.base.path",
        "Where the table is stored: an absolute path or a URI that every worker can reach.",
        also=("hoodie.base.path",),
        same_on_all_workers=True,
    )
    table_name: Name = setting(
        "target.table.name", "The name of the Hudi table.", also=("hoodie.table.name",), same_on_all_workers=True
    )
    table_type: Annotated[Literal["copy_on_write", "merge_on_read"], Choice] = setting(
        "target.table.type",
        "`copy_on_write`: a commit rewrites the base files that an upsert changes. `merge_on_read`: upserts append to"
        " log files, which a compaction later merges into base files (`services.compaction`).",
        also=("hoodie.table.type", "hoodie.datasource.write.table.type"),
        default="copy_on_write",
        same_on_all_workers=True,
    )
    name: Name = setting(
        "sink.name",
        "Name of the sink. It names the sink's znode in ZooKeeper and its checkpoint in the table. Default: the table's"
        " name.",
        also=("name",),
        # pydantic 2.10 calls this even if the table's name is invalid.
        default_factory=lambda data: data.get("table_name", "sink"),
    )
