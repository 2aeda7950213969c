"""The rows of a table as Spark returns them, for the audit. Spark starts when it is asked first."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from coordination.errors import SinkError
from sink.clients.java.errors import JAVA_ERRORS, message
from sink.config import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkTable:
    """The table of one sink. `close` ends Spark."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._session: SparkSession | None = None

    def write(self, folder: Path, metadata: bool, /) -> None:
        from sink.audit.failures import ReaderFailed

        try:
            rows = self._started().read.format("hudi").option("hoodie.metadata.enable", str(metadata).lower())
            rows.load(self._settings.base_path).write.parquet(folder.as_uri())
        except JAVA_ERRORS as error:
            raise ReaderFailed(message(error)) from error
        except SinkError as error:
            raise ReaderFailed(str(error)) from error

    def _started(self) -> SparkSession:
        if self._session is None:
            from sink.clients.spark.session import start_session

            print(f"sink: {self._settings.name}: starting Spark to read the table", file=sys.stderr, flush=True)
            log = self._settings.log_dir / "audit-spark.log"
            self._session = start_session(
                self._settings.session, f"sink-{self._settings.name}-audit", log, rolls_log=False
            )
            self._session.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        return self._session

    def close(self) -> None:
        if self._session is not None:
            self._session.stop()
