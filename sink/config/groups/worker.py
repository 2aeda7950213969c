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
        "Name of this worker in logs and in ZooKeeper, unique in the fleet. Default: the host's name. Set it if a host"
        " runs several workers: they would share a log file.",
        default_factory=socket.gethostname,
    )
    hosted: SinkNames = setting(
        "worker.sinks",
        "Sinks of the configuration that this worker takes part in: names, or shell patterns (`*`, `?`, `[...]`). Any"
        " number of workers may take part in one sink.",
        default=("*",),
    )
    spark_master: SparkMaster = setting(
        "spark.master",
        "Spark's master URL: `local[N]`, `yarn`, `spark://HOST:PORT` or `k8s://URL`. Write tasks run on its executors.",
        default="local[*]",
    )
    rehearsal: Flag = setting(
        "worker.rehearsal",
        "Whether a worker that coordinates no sink warms up: soon after it has joined, it makes four commits and a"
        " rollback in a throwaway table on its own disk. That takes some five seconds, and makes a later takeover"
        " faster. Only with a local `spark.master`.",
        default=True,
    )
    log_dir: Annotated[Path, BeforeValidator(require_str)] = setting(
        "log.dir",
        "Directory of the output of Spark, Hudi and the JVM, one `-spark.log` file per worker; relative to the working"
        " directory. The worker's own log goes to standard error.",
        default=Path("logs"),
    )
    log_level: Annotated[Literal["debug", "info", "warning", "error"], Choice] = setting(
        "log.level", "Lowest level that is logged.", default="info"
    )
    log_format: Annotated[Literal["json", "console"], Choice] = setting(
        "log.format", "One event per line: `json` for machines, `console` for people.", default="json"
    )
    metrics_port: Count = setting(
        "metrics.port", "Port of the Prometheus endpoint; 0 disables it.", default=0, ge=0, le=65535
    )

    @field_serializer("spark_master")
    def _without_userinfo(self, value: str) -> str:
        return redact_text(value)
