"""The command that the page shows can be pasted into a shell, whatever text a record puts into the reason."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sink.http.table_process import replay_command

START = ["sink", "errors", "replay", "--config", "FILE"]
ONE = [*START, "--topic=orders", "--partition=1", "--offset=7"]


def group(reason: str) -> dict[str, Any]:
    return {"reason": reason, "records": 2, "first": {"topic": "orders", "partition": 1, "offset": 7}}


@pytest.mark.parametrize("reason", ["field a: 'x' is not an INT", "$(rm -rf /) `id` ; | & \\ !", '"', "--yes"])
def test_a_reason_is_one_word_of_the_command(reason: str) -> None:
    assert shlex.split(replay_command(group(reason))) == [*START, f"--reason={reason}"]


@pytest.mark.parametrize("reason", ["two\nlines", "\x1b[2J", "right \u202e left", "\x00"])
def test_a_reason_that_a_terminal_could_act_upon_is_left_out(reason: str) -> None:
    assert shlex.split(replay_command(group(reason))) == ONE


@given(st.text())
def test_no_reason_adds_a_word_or_a_line(reason: str) -> None:
    command = replay_command(group(reason))
    assert command.isprintable()
    words = shlex.split(command)
    assert words == ONE or (words[:-1] == START and words[-1] == f"--reason={reason}")
