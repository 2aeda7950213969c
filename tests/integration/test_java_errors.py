"""What Java says is one line with the whole chain of causes: never the outermost wrapper alone."""

from __future__ import annotations

from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sink.java_errors import everything, message, said

pytestmark = pytest.mark.integration


def raised(spark: SparkSession, exception: Any) -> BaseException:
    """As Java throws it at Python, with one more wrapper."""
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
    assert said(error) == message(error)
    assert "at org.Somewhere" in everything(error)


def test_a_long_chain_keeps_its_ends(spark: SparkSession) -> None:
    java = spark._jvm.java
    error: Any = java.io.IOException("the root")
    for number in range(10):
        error = java.lang.RuntimeException(f"{number} " + "x" * 200, error)
    text = message(raised(spark, error))
    assert text.endswith("; caused by ...; caused by java.io.IOException: the root")
    assert len(text) < 300


def test_what_a_task_raised_is_told_without_its_traceback(spark: SparkSession) -> None:
    def fail(batches: Any) -> Any:
        raise ValueError("no such thing")

    with pytest.raises(PySparkException) as thrown:
        spark.range(1).mapInPandas(fail, "id long").collect()
    assert "ValueError: no such thing" in said(thrown.value)
    assert "\n" not in said(thrown.value)
