"""A JVM that does not start says why in a sentence."""

from __future__ import annotations

import pytest

from coordination.errors import ConfigError
from sink.clients.java.installation import exit_reason, find_java, require_heap


def test_a_heap_that_java_does_not_take_is_refused_with_javas_reason() -> None:
    require_heap(find_java(), "64m")
    with pytest.raises(ConfigError, match=r"^spark\.driver\.memory: .*'2 GB' \(.*heap size.*\)\. Write it like 2g\.$"):
        require_heap(find_java(), "2 GB")


def test_the_reason_why_a_jvm_ended_is_the_first_line_that_is_neither_event_nor_warning() -> None:
    output = """\
Picked up JAVA_TOOL_OPTIONS: -Dfile.encoding=UTF-8
[0.011s][warning][cds] shared class paths mismatch
2026-11-26T18:05:18,890 WARN Utils Your hostname resolves to a loopback address

Exception in thread "main" org.apache.spark.SparkException: Master must be yarn.
\tat org.apache.spark.deploy.SparkSubmit.error(SparkSubmit.scala:1052)
"""
    assert exit_reason(output) == 'Exception in thread "main" org.apache.spark.SparkException: Master must be yarn'
    assert exit_reason("") == ""
