"""Settings of the table's files: what writes them, their sizes, and the table services that look after them."""

from __future__ import annotations

from typing import Annotated, Literal

from sink.config.fields import Choice, SettingGroup, setting
from sink.config.values import Count, DurationMs, Flag, SizeBytes


class FileSettings(SettingGroup):
    engine: Annotated[Literal["arrow", "hudi"], Choice] = setting(
        "write.engine",
        "`arrow` writes Hudi base files from Arrow batches; `hudi` uses Hudi's own row writer, for"
        " file systems that Arrow does not reach.",
        default="arrow",
        same_on_all_workers=True,
    )
    provenance: Flag = setting(
        "provenance.columns",
        "Add `_kafka_topic`, `_kafka_partition`, `_kafka_offset` and `_kafka_timestamp`.",
        default=True,
        same_on_all_workers=True,
    )
    file_max_bytes: SizeBytes = setting(
        "file.max.bytes",
        "A data file is closed and another begun at about this size.",
        default=128 * 1024**2,
        ge=64 * 1024,
        le=16 * 1024**3,
        same_on_all_workers=True,
    )
    open_files_max: Count = setting(
        "file.open.max",
        "Most data files that one task keeps open: bounds memory when a slice spreads over many table partitions.",
        default=64,
        ge=1,
        le=10_000,
        same_on_all_workers=True,
    )
    services_interval: Count = setting(
        "services.interval.commits",
        "After so many transactions the table services run again (cleaning, archiving, and those below), on one elected"
        " worker, off the commit path.",
        default=10,
        ge=1,
        le=1_000_000,
    )
    services_overdue_ms: DurationMs = setting(
        "services.overdue.after",
        "A table service that has been due for so long and has not succeeded is a fault in `/health`.",
        default=86_400_000,
        ge=1000,
        le=30 * 86_400_000,
    )
    services_audit_ms: DurationMs = setting(
        "services.audit.interval",
        "So often a worker audits the contents of the commits since the last time (`sink audit --content --since`), in"
        " a process of its own at the lowest priority. 0: never.",
        default=0,
        ge=0,
        le=30 * 86_400_000,
    )
    services_clustering: Flag = setting(
        "services.clustering",
        "Whether they also rewrite small files as larger ones, by Hudi's clustering and its `hoodie.clustering.*`"
        " settings. While that lasts, updates by others to rows of these files fail.",
        default=False,
    )
    services_compaction: Flag = setting(
        "services.compaction",
        "Whether they also compact a merge-on-read table, by Hudi's `hoodie.compact.*` settings.",
        default=True,
    )
