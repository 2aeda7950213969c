"""Options of a JVM that only commits."""

from __future__ import annotations

import pytest

from sink.local.java_options import committing_jvm


def test_a_jvm_that_only_commits_collects_with_one_thread_and_compiles_for_good_later() -> None:
    assert "-XX:+UseSerialGC" in committing_jvm("-Xss2m").split()
    assert "-XX:Tier4InvocationThreshold=50000" in committing_jvm("-Xss2m").split()


@pytest.mark.parametrize("given", ["-XX:+UseG1GC", "-Dname=value -XX:+UseParallelGC -Xss2m", "-XX:+UseZGC"])
def test_a_collector_that_the_user_names_is_the_only_one(given: str) -> None:
    assert "GC" not in committing_jvm(given)
