"""A Java exception is one line with the whole chain of causes: never the outermost wrapper alone."""

from __future__ import annotations

from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sink.clients.java.errors import error_summary, error_text, message

pytestmark = pytest.mark.integration


def raised(spark: SparkSession, exception: Any) -> BaseException:
    """Returns the exception as Java throws it at Python, with one more wrapper."""
    future = spark._jvm.java.util.concurrent.CompletableFuture()
    future.completeExceptionally(exception)
    with pytest.raises((Py4JJavaError, PySparkException)) as thrown:
        future.get()
    return thrown.value


def test_every_cause_is_told_once_in_one_line(spark: SparkSession) -> None:
    java = spark._jvm.java
    root = java.io.IOException("Access Denied\n\tat org.Somewhere")
    middle = java.lang.RuntimeException("cannot list", root)
    error = raised(spark, java.lang.IllegalStateException("cannot begin\nan instant", middle))
    assert message(error) == (
        "java.util.concurrent.ExecutionException: java.lang.IllegalStateException: cannot begin an instant;"
        " caused by java.lang.RuntimeException: cannot list; caused by java.io.IOException: Access Denied"
    )
    assert error_summary(error) == message(error)
    assert "at org.Somewhere" in error_text(error)


@pytest.mark.parametrize("length", [600, 300])
def test_a_long_chain_is_told_whole_its_wrappers_shortened(spark: SparkSession, length: int) -> None:
    java = spark._jvm.java
    error: Any = java.io.IOException("the root")
    for number in range(5):
        error = java.lang.RuntimeException(f"{number} " + "x" * 200, error)
    text = message(raised(spark, error), length)
    causes = text.split("; caused by ")
    assert causes[-1] == "java.io.IOException: the root"
    assert [cause.partition(": ")[2][0] for cause in causes[1:-1]] == ["3", "2", "1", "0"]
    assert all(cause.endswith("...") for cause in causes[:-1])
    assert len(text) <= max(length, 6 * 75)


def test_a_long_root_is_cut_last(spark: SparkSession) -> None:
    java = spark._jvm.java
    root = java.io.IOException("y" * 1000)
    text = message(raised(spark, java.lang.RuntimeException("x" * 1000, root)))
    assert "caused by java.io.IOException: yyyy" in text
    assert len(text) <= 600


def test_what_a_task_raised_is_told_without_its_traceback(spark: SparkSession) -> None:
    def fail(batches: Any) -> Any:
        raise ValueError("no such thing")

    with pytest.raises(PySparkException) as thrown:
        spark.range(1).mapInPandas(fail, "id long").collect()
    assert "ValueError: no such thing" in error_summary(thrown.value)
    assert "\n" not in error_summary(thrown.value)
