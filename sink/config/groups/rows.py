"""Settings of rows: the operation, the record key, deletes, and partitions."""

from __future__ import annotations

from typing import Annotated, Literal

from sink.config.fields import Choice, SettingGroup, setting
from sink.config.values import Column, Columns, Flag, KeyFormatName, TimeFormat, TimeZone


class RowSettings(SettingGroup):
    record_key_fields: Columns = setting(
        "record.key.fields",
        "Fields that make the record key. Default: topic, partition and offset.",
        also=("hoodie.datasource.write.recordkey.field",),
        default=(),
        same_on_all_workers=True,
    )
    operation: Annotated[Literal["append", "insert", "upsert"], Choice] = setting(
        "write.operation",
        "`append` adds every record as a row, written by the whole fleet. `upsert` keeps one row for each record key,"
        " and `insert` adds rows to small files, both through Hudi's own writer on one worker at a time.",
        default="append",
        same_on_all_workers=True,
    )
    ordering_fields: Columns = setting(
        "ordering.field.name",
        "Columns that decide which of two records of one key is newer, with `write.operation=upsert`. Default: the"
        " later one in the log.",
        default=(),
        same_on_all_workers=True,
    )
    index_type: Annotated[Literal["bloom", "record", "bucket"], Choice] = setting(
        "index.type",
        "How an upsert finds a key's row: `bloom` filters in the data files (copy on write alone), `record`, Hudi's"
        " global record index, or `bucket`, a hash of the key, which needs `hoodie.bucket.index.num.buckets`.",
        default="bloom",
        same_on_all_workers=True,
    )
    delete_field: Column = setting(
        "delete.field",
        "Field of a value that says whether it deletes the row of its key: a boolean, a text `true` or `false`, or the"
        " number 1 or 0. It need not be a column. `__deleted` is that of Debezium's ExtractNewRecordState with"
        " `delete.tombstone.handling.mode=rewrite`.",
        default="_hoodie_is_deleted",
        same_on_all_workers=True,
    )
    delete_key_format: Annotated[KeyFormatName, Choice] = setting(
        "delete.key.format",
        "How the keys of Kafka's records hold the fields of `record.key.fields`, for records that have nothing else:"
        " tombstones, and Debezium's deletes without `before`. `string`, and `int` and `long` as Kafka's serializers"
        " write them: the one field; the others: fields by their names, or the one field alone. With `none` a tombstone"
        " halts the sink, unless the record key is `_kafka_key`.",
        default="none",
        same_on_all_workers=True,
    )
    partition_fields: Columns = setting(
        "partition.field.name",
        "Columns that the table is partitioned by. Default: not partitioned.",
        also=("hoodie.datasource.write.partitionpath.field",),
        default=(),
        same_on_all_workers=True,
    )
    partition_time_field: Column | None = setting(
        "partition.time.field",
        "Column whose time the table is partitioned by, after `partition.field.name`: a TIMESTAMP, a DATE, a BIGINT or"
        " INT (see `time.unit`), a STRING of times as a TIMESTAMP takes them, or `_kafka_timestamp`. The table gets a"
        " column of text for it. Default: none.",
        also=("timestamp.field",),
        default=None,
        same_on_all_workers=True,
    )
    partition_time_format: TimeFormat = setting(
        "partition.time.format",
        "`hourly`, `daily`, `monthly`, `yearly`, or a pattern of `yyyy`, `MM`, `dd`, `HH`, `mm`, other signs and quoted"
        " text, like `yyyy/MM/dd`.",
        also=("path.format", "hoodie.keygen.timebased.output.dateformat"),
        default="daily",
        same_on_all_workers=True,
    )
    partition_time_zone: TimeZone = setting(
        "partition.time.zone",
        "Time zone of these hours and days, like `Europe/Berlin`. A DATE is the same day in all of them.",
        also=("timezone", "hoodie.keygen.timebased.timezone"),
        default="UTC",
        same_on_all_workers=True,
    )
    partition_time_column: Column | None = setting(
        "partition.time.column",
        "Name of the column that is generated. Default: `hour`, `day`, `month` or `year` after the format,"
        " `partition_time` with a pattern.",
        default=None,
        same_on_all_workers=True,
    )
    hive_style: Flag = setting(
        "partition.hive.style",
        "Partition directories are named `column=value`.",
        also=("hoodie.datasource.write.hive_style_partitioning",),
        default=True,
        same_on_all_workers=True,
    )
