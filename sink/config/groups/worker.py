"""Settings of a worker's process, for all its sinks: its name, Spark, logs and metrics."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, field_serializer

from sink.config.fields import Choice, SettingGroup, setting
from sink.config.values import Count, Flag, Name, SinkNames, SparkMaster, require_str
from sink.telemetry.redaction import redact_text


class WorkerSettings(SettingGroup):
    worker_id: Name = setting(
        "worker.id",
        "Name of this worker, unique in the fleet. Default: the host's name.",
        default_factory=socket.gethostname,
    )
    hosted: SinkNames = setting(
        "worker.sinks",
        "Sinks of the configuration that this worker takes part in: names, or patterns with `*` and `?`. Every worker"
        " that names a sink hosts it.",
        default=("*",),
    )
    spark_master: SparkMaster = setting("spark.master", "Where Spark runs the work.", default="local[*]")
    rehearsal: Flag = setting(
        "worker.rehearsal",
        "Whether a worker that does not lead makes one commit in a table on its own disk that it throws away, soon"
        " after it has joined. It takes some five seconds, and a takeover is faster for it. Only where `spark.master`"
        " is local.",
        default=True,
    )
    log_dir: Annotated[Path, BeforeValidator(require_str)] = setting(
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

    @field_serializer("spark_master")
    def _without_userinfo(self, value: str) -> str:
        return redact_text(value)
