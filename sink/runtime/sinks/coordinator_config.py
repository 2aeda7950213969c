"""A coordinator's configuration, from a sink's settings."""

from __future__ import annotations

from coordination.planning.config import CoordinatorConfig
from coordination.planning.offsets import DataLossPolicy, OffsetReset
from coordination.planning.slicing import Limits
from coordination.planning.tolerance import NO_ERRORS, ErrorLimits
from coordination.planning.write_tasks import USUAL_SIZES, TaskSizes
from sink.config import Settings
from sink.config.values import flag


def coordinator_config(settings: Settings, incarnation: str, lock_path: str) -> CoordinatorConfig:
    return CoordinatorConfig(
        sink=settings.name,
        incarnation=incarnation,
        lock_path=lock_path,
        config_digest=settings.config_digest,
        topics=settings.topics,
        topic_pattern=settings.topic_pattern,
        limits=Limits(settings.flush_size, settings.slice_records),
        interval=settings.interval_ms / 1000,
        timeout=settings.writestatus_timeout_ms / 1000,
        in_flight=settings.in_flight,
        reset=OffsetReset(settings.offset_reset),
        on_data_loss=DataLossPolicy(settings.on_data_loss),
        single_writer=settings.operation != "append",
        flush_bytes=settings.flush_bytes,
        allow_empty=flag(settings.hudi.get("hoodie.allow.empty.commit", "false")),
        errors=ErrorLimits(settings.errors_max, settings.errors_ratio) if settings.tolerant else NO_ERRORS,
        task_sizes=TaskSizes(settings.task_bytes, min(USUAL_SIZES.least, settings.task_bytes)),
    )
