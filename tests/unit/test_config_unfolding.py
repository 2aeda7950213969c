"""A small configuration that repeats lists, keys or names without end is refused before it is copied."""

from __future__ import annotations

from pathlib import Path

import pytest

from sink.config.files import Entry, Problem, parse

LONG = b"a" * 100_000
KEYS = b"".join(b"  k%d: 1\n" % number for number in range(100))


def aliases(count: int) -> bytes:
    return b"".join(b"k%d: *x\n" % number for number in range(count))


UNFOLDING = {
    "a list": b"a: &x [" + b"a," * 4_000 + b"]\n" + aliases(600),
    "a list that is refused": b"a: &x [" + b"a," * 4_000 + b"{b: c}]\n" + aliases(600),
    "a placeholder": b"a: &x {? " + LONG + b" : }\n" + aliases(100),
    "a key around others": b"? " + LONG + b"\n:\n" + KEYS,
    "the name of a sink": b"sinks:\n ? " + LONG + b"\n :\n" + KEYS,
}


@pytest.mark.parametrize("repeated", UNFOLDING)
def test_aliases_and_long_keys_unfold_to_no_more_than_the_largest_file(repeated: str) -> None:
    (problem,) = parse(UNFOLDING[repeated], Path("sink.yaml"))
    assert isinstance(problem, Problem)
    assert "unfolds to more than 4 MiB of keys and values" in problem.sentence


def test_an_alias_repeats_a_list_of_a_usual_length() -> None:
    content = b"a: &x [one, two]\n" + aliases(1_000)
    entries = list(parse(content, Path("sink.yaml")))
    assert len(entries) == 1_001
    assert all(isinstance(entry, Entry) and entry.value == ("one", "two") for entry in entries)
