"""Options of a JVM that only commits."""

from __future__ import annotations

import pytest

from sink.clients.java_options import _ENVIRONMENT, committing_jvm


@pytest.fixture(autouse=True)
def no_options_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in _ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)


def test_a_jvm_that_only_commits_collects_with_one_thread_and_compiles_for_good_later() -> None:
    assert "-XX:+UseSerialGC" in committing_jvm("-Xss2m").split()
    assert "-XX:Tier4InvocationThreshold=50000" in committing_jvm("-Xss2m").split()


@pytest.mark.parametrize("options", ["-XX:+UseG1GC", "-Dname=value -XX:+UseParallelGC -Xss2m", "-XX:+UseZGC"])
def test_a_collector_that_the_user_names_is_the_only_one(options: str) -> None:
    assert "GC" not in committing_jvm(options)


@pytest.mark.parametrize("name", _ENVIRONMENT)
def test_a_collector_in_the_environment_is_the_only_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A JVM with two collectors does not start."""
    monkeypatch.setenv(name, "-Dname=value -XX:+UseG1GC")
    assert "GC" not in committing_jvm("-Xss2m")


def test_a_collector_in_any_of_the_settings_is_the_only_one() -> None:
    assert "GC" not in committing_jvm("-Xss2m", "-XX:+UseG1GC")
