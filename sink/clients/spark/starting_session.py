"""Starts the Spark session of a worker while the worker does something else."""

from __future__ import annotations

import threading
from concurrent import futures
from concurrent.futures import Future
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession
from typing_extensions import Self

from sink.clients.spark.session import start_session
from sink.clients.spark.specification import SessionSpecification


class StartingSession:
    """A context manager that starts a session in a thread. Leaving it waits until the start has ended, and stops the
    session."""

    def __init__(
        self,
        specification: SessionSpecification,
        app: str,
        spark_log: Path | None = None,
        parallel_sinks: bool = False,
    ) -> None:
        self._started: Future[SparkSession] = Future()
        self._start_session = partial(start_session, specification, app, spark_log, parallel_sinks)
        self._thread = threading.Thread(target=self._start, name="spark", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._started.exception() is None and self._started.result().sparkContext._jsc is not None:
            self._started.result().stop()

    def wait(self, seconds: float) -> bool:
        """Waits at most `seconds`. Returns whether the session has started, or failed to start."""
        return bool(futures.wait([self._started], timeout=seconds).done)

    def session(self) -> SparkSession:
        """Waits for the session and returns it. Raises the errors of `start_session`."""
        return self._started.result()

    def _start(self) -> None:
        try:
            self._started.set_result(self._start_session())
        except BaseException as error:  # noqa: BLE001 (`session` raises it again)
            self._started.set_exception(error)
