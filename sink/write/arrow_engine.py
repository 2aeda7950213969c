"""The Arrow engine: Spark's Python workers read, decode and write the records as Arrow columns.

Guarantee: that of `sink.write.engine`. The files are ordinary Hudi base files, written without Hudi's Java writer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from sink.hudi.options import arrow_codec, partition_columns, populate_meta_fields
from sink.storage.files import open_storage
from sink.write.engine import Engine
from sink.write.quarantine import tolerated
from sink.write.record_columns import RowSpec
from sink.write.slice_files import FileLimits
from sink.write.slice_task import REPORT, WriteJob, report_of, run
from sink.write.task_input import TaskInput
from sink.write.task_report import TaskReport

_BUFFER_BYTES = 64 << 20
_SORT_BUFFER_BYTES = 128 << 20


class ArrowEngine(Engine):
    """For write.operation=append with write.engine=arrow."""

    def check(self) -> None:
        super().check()
        open_storage(self._settings.base_path, self._settings.storage)

    def _run(self, instant: str, task_input: TaskInput, spec: RowSpec) -> tuple[Iterable[TaskReport], Sequence[str]]:
        job = self._job(instant, task_input, spec)
        rows = task_input.frame.mapInArrow(partial(run, job), REPORT).collect()
        return [report_of(bytes(row["report"])) for row in rows], ()

    def _job(self, instant: str, task_input: TaskInput, spec: RowSpec) -> WriteJob:
        settings = self._settings
        partitioned = bool(partition_columns(settings))
        buffer = _SORT_BUFFER_BYTES if partitioned else min(_BUFFER_BYTES, max(1 << 20, settings.file_max_bytes))
        return WriteJob(
            base_path=settings.base_path,
            sink=settings.name,
            table=settings.table_name,
            instant=instant,
            reads=task_input.reads,
            spec=spec,
            meta_fields=populate_meta_fields(settings),
            codec=arrow_codec(settings),
            limits=FileLimits(settings.file_max_bytes, settings.open_files_max, buffer),
            tolerated=tolerated(settings),
            access=settings.storage,
        )
