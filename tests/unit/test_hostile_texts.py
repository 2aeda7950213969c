"""Texts that strangers choose are redacted in linear time, and names of topics are matched in a bounded time."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from settings_kit import minimal_settings

from coordination.errors import ConfigError
from sink.config.regex_cost import LONGEST_NAME, MOST_WAYS, ways
from sink.config.values import topic_regex
from sink.telemetry.redaction import HIDDEN, looks_secret, redact_text

SECRET = "hunter2-Tr0ub4dor"
REPEATED = [
    "token", "a", "http://", "a+", "token ", "token='\"", 'token="\\', "-----BEGIN ", "-----BEGIN PRIVATE KEY", "-.",
    "token:", 'x_token"  =  ', "record", "://a", "Aa", "A",
]  # fmt: skip


@pytest.mark.parametrize("part", REPEATED)
def test_a_hundred_thousand_characters_are_redacted_at_once(part: str) -> None:
    text = part * (100_000 // len(part))
    start = time.process_time()
    redact_text(text)
    looks_secret(text)
    assert time.process_time() - start < 1


@pytest.mark.parametrize("part", ["token", "a", "http://", "token ", "-.", "record"])
def test_a_secret_behind_a_long_text_is_hidden(part: str) -> None:
    for secret in (f" password={SECRET}", f" http://user:{SECRET}@host/", f" ://user:{SECRET}@host/"):
        redacted = redact_text(part * 400 + secret)
        assert SECRET not in redacted
        assert HIDDEN in redacted


@pytest.mark.parametrize(
    "expression",
    [
        "(a+)+", "([a-z]+)+x", "(a|a)*b", ".*.*.*.*x", "(.*)*", "(a*)*", "(x+x+)+y", "(?:a?){30}a{30}", "(?i)(ab|AB)*x",
        "(?:[a-z]+|[0-9]+)+-", "(?=(a+)+$)a", r"(\w+\w+\.)+x",
    ],
)  # fmt: skip
def test_an_expression_for_topics_that_takes_hours_for_some_name_is_refused(tmp_path: Path, expression: str) -> None:
    with pytest.raises(ConfigError, match=r"kafka\.topic\.regex .* matching takes hours"):
        minimal_settings(tmp_path, kafka__topic__names="", kafka__topic__regex=expression.replace("\\", "\\\\"))


@pytest.mark.parametrize(
    "expression",
    [
        ".*", r"orders\..*", "(?<region>[a-z]+)-(?<name>.*)", r"([a-z]+\.)+orders", "(.*)-(.*)", "a.*b.*c.*",
        "(?:orders|payments)-[a-z]+", "(?i)ORDERS_.*", r"(?:[a-z0-9]+(?:-[a-z0-9]+)*\.)*events", "(a|ab)*c",
        r"^db\.[a-z_]+\.(orders|customers)$", "(?!x)(.*)", r"(\w+)\.(\w+)\.(\w+)\.(\w+)",
    ],
)  # fmt: skip
def test_expressions_for_topics_that_people_write_are_taken(expression: str) -> None:
    assert topic_regex(expression)


PARTS = st.recursive(
    st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\w", r"\.", "-", "ab", "$"]),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["*", "+", "?", "*?", "{2,9}", "{0,40}"])).map(lambda x: f"(?:{x[0]}){x[1]}"),
        st.tuples(inner, inner).map(lambda x: x[0] + x[1]),
        st.tuples(inner, inner).map(lambda x: f"({x[0]}|{x[1]})"),
    ),
    max_leaves=8,
)
NAMES = st.tuples(
    st.sampled_from(["a", "b", "ab", "aab", "a.", "a-b", "."]), st.sampled_from(["", "-", "_", "b."])
).map(lambda x: ((x[0] * LONGEST_NAME)[: LONGEST_NAME - len(x[1])]) + x[1])


@given(expression=PARTS, name=NAMES)
@settings(max_examples=settings.default.max_examples * 2, deadline=None)
def test_an_expression_that_is_taken_decides_on_any_name_within_two_seconds(expression: str, name: str) -> None:
    if ways(expression) > MOST_WAYS:
        return
    start = time.process_time()
    re.fullmatch(f"(?!__)(?:{expression})", name)
    assert time.process_time() - start < 2
