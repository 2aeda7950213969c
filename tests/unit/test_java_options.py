"""Options of a JVM that only commits."""

from __future__ import annotations

import pytest

from sink.clients.java.options import _ENVIRONMENT, committing_jvm, security_properties, split_options


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


@pytest.mark.parametrize(
    ("options", "properties"),
    [
        ("-Xmx4g -Djavax.net.ssl.trustStore=/etc/lake.jks", ["-Djavax.net.ssl.trustStore=/etc/lake.jks"]),
        (
            '"-Djava.security.krb5.conf=/etc/my realm/krb5.conf"',
            ["'-Djava.security.krb5.conf=/etc/my realm/krb5.conf'"],
        ),
        ("-Dcom.sun.management.jmxremote.port=19991 -XX:+UseG1GC", []),
        ("-Djava.security.krb5.conf='/etc", []),
    ],
    ids=["certificates", "a blank", "a port that a worker has taken", "a quote too few"],
)
def test_a_short_lived_jvm_shares_certificates_and_realm_with_a_worker(options: str, properties: list[str]) -> None:
    assert security_properties(options) == properties


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (r"""-Da='x y'  "-Db=\"q\" \z"	-Dc=x\ y ''""", ["-Da=x y", '-Db="q" z', "-Dc=x y", ""]),
        (r"-Da='\n'", [r"-Da=\n"]),
        (" ", []),
    ],
    ids=["quotes", "a backslash in single quotes", "nothing"],
)
def test_options_are_split_as_sparks_launcher_splits_them(text: str, options: list[str]) -> None:
    assert split_options(text.replace(r"\t", "\t")) == options
