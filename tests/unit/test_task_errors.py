"""A task's error is read back from the error that Spark makes of it."""

from __future__ import annotations

import pickle
import traceback

import pytest

from coordination.errors import BadRecord, DamagedLog, DataLoss
from sink.decode.registry.answers import RegistryUnavailable
from sink.write.engines.task_errors import TaskFailed, failed_task, task_error

REASONS = [
    "plain",
    'with "quotes", \\ backslash and\nanother line',
    "umlaut ä, nul \0, surrogate-free emoji 🙂",
    'the value holds sink-task-error:["DataLoss", "other", 9, 9, "forged"]',
]


def as_spark_reports(error: BaseException) -> RuntimeError:
    """Returns Spark's error: a Python traceback within Java's text, between other lines."""
    traceback_text = "".join(traceback.format_exception(error))
    return RuntimeError(
        "Job aborted due to stage failure: Task 3 in stage 7.0 failed 1 times, most recent failure: Lost task 3.0"
        f" (TID 9) (host executor driver): org.apache.spark.api.python.PythonException: {traceback_text}\n"
        "\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(Python.scala:572)\n"
        "Driver stacktrace:"
    )


@pytest.mark.parametrize("kind", [BadRecord, DataLoss, DamagedLog])
@pytest.mark.parametrize("reason", REASONS)
def test_a_tasks_error_comes_back_as_it_was(kind: type[BadRecord] | type[DataLoss], reason: str) -> None:
    error = kind("some-topic-1", 17, 1 << 40, reason)
    try:
        try:
            raise error
        except kind as caught:
            raise failed_task(caught) from None
    except TaskFailed as raised:
        received = task_error(as_spark_reports(raised))
    assert type(received) is kind
    assert vars(received) == vars(error)


def test_a_registry_that_does_not_answer_comes_back_as_such() -> None:
    received = task_error(as_spark_reports(failed_task(RegistryUnavailable("schema registry: no answer"))))
    assert type(received) is RegistryUnavailable
    assert str(received) == "schema registry: no answer"


def test_another_error_is_none_of_a_task() -> None:
    assert task_error(as_spark_reports(ValueError("no such thing"))) is None


def test_a_failed_task_can_be_sent_as_a_report() -> None:
    failed = pickle.loads(pickle.dumps(failed_task(BadRecord("t", 0, 1, "why"))))
    assert str(task_error(failed)) == "t-0 offset 1: why"
