"""Settings of a worker: its files, the table services, Spark, logs and metrics."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import field_serializer, field_validator

from sink.config.fields import Choice, Group, setting
from sink.config.values import Count, Flag, SizeBytes, Text, require_str
from sink.telemetry.redaction import redact_text


class WorkerSettings(Group):
    engine: Annotated[Literal["arrow", "hudi"], Choice] = setting(
        "write.engine",
        "`arrow` writes Hudi base files from Arrow batches; `hudi` uses Hudi's own row writer, for"
        " file systems that Arrow does not reach.",
        default="arrow",
        fleet=True,
    )
    provenance: Flag = setting(
        "provenance.columns",
        "Add `_kafka_topic`, `_kafka_partition`, `_kafka_offset` and `_kafka_timestamp`.",
        default=True,
        fleet=True,
    )
    file_max_bytes: SizeBytes = setting(
        "file.max.bytes",
        "A data file is closed and another begun at about this size.",
        default=128 * 1024**2,
        ge=64 * 1024,
        le=16 * 1024**3,
        fleet=True,
    )
    open_files_max: Count = setting(
        "file.open.max",
        "Most data files that one task keeps open: bounds memory when a slice spreads over many table partitions.",
        default=64,
        ge=1,
        le=10_000,
        fleet=True,
    )
    services_interval: Count = setting(
        "services.interval.commits",
        "After so many transactions the table services run again (cleaning, archiving, and those below), on one elected"
        " worker, off the commit path.",
        default=10,
        ge=1,
        le=1_000_000,
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
    spark_master: Text = setting("spark.master", "Where Spark runs the work.", default="local[*]")
    rehearsal: Flag = setting(
        "worker.rehearsal",
        "Whether a worker that does not lead makes one commit in a table on its own disk that it throws away, soon"
        " after it has joined. It takes some five seconds, and a takeover is faster for it. Only where `spark.master`"
        " is local.",
        default=True,
    )
    log_dir: Path = setting(
        "log.dir",
        "Directory of the files that take Spark's and Hudi's own output; relative to the working directory.",
        default=Path("logs"),
    )
    log_level: Annotated[Literal["debug", "info", "warning", "error"], Choice] = setting(
        "log.level", "Least important events that are logged.", default="info"
    )
    log_format: Annotated[Literal["json", "console"], Choice] = setting(
        "log.format", "One line an event: `json` for machines, `console` for people.", default="json"
    )
    metrics_port: Count = setting(
        "metrics.port", "Port of the Prometheus metrics; 0 serves none.", default=0, ge=0, le=65535
    )

    @field_validator("log_dir", mode="before")
    @classmethod
    def _a_path(cls, value: Any) -> Any:
        return value if isinstance(value, Path) else Path(require_str(value))

    @field_serializer("spark_master")
    def _without_userinfo(self, value: str) -> str:
        return redact_text(value)
