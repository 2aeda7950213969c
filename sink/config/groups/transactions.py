"""Settings of transactions: their size and deadline, the offsets that partitions begin at, lost and bad records."""

from __future__ import annotations

from typing import Annotated, Literal

from sink.config.fields import Choice, SettingGroup, setting
from sink.config.values import BasePath, Count, DurationMs, Flag, Share, SizeBytes, TopicName


class TransactionSettings(SettingGroup):
    flush_size: Count = setting(
        "flush.size",
        "Most records (offsets) of one partition in one transaction.",
        default=5_000_000,
        ge=1,
        le=10**12,
        same_on_all_workers=True,
    )
    flush_bytes: SizeBytes | None = setting(
        "flush.bytes",
        "Most bytes of records in one transaction, estimated from the last ones; a new coordinator counts 1 KiB each"
        " until it knows. A transaction that reaches this or `flush.size` does not wait for `transaction.interval.ms`."
        " Default: no bound.",
        default=None,
        ge=1,
        le=2**50,
        same_on_all_workers=True,
    )
    slice_records: Count = setting(
        "slice.records",
        "Ranges are cut at multiples of it, or more finely where a partition alone has to keep all cores busy. A piece"
        " (slice) is what is counted and checked; several of them make a write task, see `write.task.bytes`. Above"
        " `flush.size` it does not cut.",
        default=1_000_000,
        ge=1,
        le=10**12,
        same_on_all_workers=True,
    )
    task_bytes: SizeBytes = setting(
        "write.task.bytes",
        "Bytes of records that a write task (a Spark task that writes one file group for each table partition, of"
        " slices of any number of Kafka partitions) is planned for, estimated from the last transactions. A transaction"
        " has at least as many of them as the fleet has cores, unless they would be smaller than 4 MiB and than this.",
        default=512 * 1024 * 1024,
        ge=1024,
        le=2**50,
        same_on_all_workers=True,
    )
    interval_ms: DurationMs = setting(
        "transaction.interval.ms",
        "How often a transaction is begun, if there are records.",
        default=60_000,
        ge=10,
        le=86_400_000,
    )
    writestatus_timeout_ms: DurationMs = setting(
        "coordinator.writestatus.timeout",
        "How long participants may take to write a transaction's slices before it"
        " is aborted and re-formed. Grows with each attempt.",
        default=300_000,
        ge=1000,
        le=86_400_000,
    )
    in_flight_max: Count | None = setting(
        "transactions.in.flight",
        "Transactions that may be open at once: 2 writes the next one while one commits, where records for a full one"
        " are there already. Default: 2 for a table on an object store with `write.operation=append` and"
        " `write.engine=arrow`, else 1.",
        default=None,
        ge=1,
        le=8,
    )
    offset_reset: Annotated[Literal["earliest", "latest"], Choice] = setting(
        "auto.offset.reset",
        "Where to start with a partition that neither the table nor ZooKeeper knows. With `kafka.topic.regex` a topic"
        " that comes to match after the sink has begun is always read from its beginning.",
        default="earliest",
        same_on_all_workers=True,
    )
    on_data_loss: Annotated[Literal["fail", "skip"], Choice] = setting(
        "on.data.loss",
        "When Kafka deleted records before they were read: `fail` halts the sink, `skip` records the"
        " gap in the table's checkpoint and goes on. A log that lost records which were read, and grew again, halts the"
        " sink in either case: no offset is missing.",
        default="fail",
        same_on_all_workers=True,
    )
    errors_tolerance: Annotated[Literal["none", "all"], Choice] = setting(
        "errors.tolerance",
        "What to do with a record that cannot be decoded, or has no place in the table: `none` halts the sink and names"
        " it; `all` puts it into the errors table, exactly once, and goes on.",
        default="none",
        same_on_all_workers=True,
    )
    errors_quote_values: Flag = setting(
        "errors.quote.values",
        "Whether the reason of a bad record quotes the value that is wrong; otherwise it has the value's type and"
        " length. For logs, ZooKeeper, HTTP, metrics, the errors table and dead letters alike; the record itself is in"
        " the errors table and in dead letters all the same.",
        default=True,
        same_on_all_workers=True,
    )
    errors_max: Count = setting(
        "errors.max.per.transaction",
        "A transaction with more bad records halts the sink, and nothing of it lands.",
        default=1000,
        ge=1,
        le=100_000,
        same_on_all_workers=True,
    )
    errors_ratio: Share = setting(
        "errors.max.ratio",
        "A transaction of at least 100 records of which a greater share is bad halts the sink; 1 for no such limit.",
        default=0.5,
        ge=0.0,
        le=1.0,
        same_on_all_workers=True,
    )
    errors_base_path: BasePath = setting(
        "errors.table.base.path",
        "Where the errors table is, which is made with the first bad record. Its name is that of the table with"
        " `_errors` behind it. Default: the table's base path with `_errors` behind it.",
        default_factory=lambda data: f"{data.get('base_path', '')}_errors",
        same_on_all_workers=True,
    )
    errors_topic: TopicName | None = setting(
        "errors.deadletter.topic",
        "Kafka topic that gets a copy of each bad record, at least once, with Kafka Connect's headers"
        " (`__connect.errors.*`). It has to exist. Default: none.",
        default=None,
        same_on_all_workers=True,
    )
