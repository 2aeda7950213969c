"""`sink errors` says in one sentence what it cannot do."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest

from sink import cli
from sink.bad_records.replay import ReplayPreview
from sink.commands.errors import _print_groups, _print_outcome, _print_records
from sink.telemetry.terminal import console
from tests.unit.test_config_errors import BASE


@pytest.fixture
def config(tmp_path: Path) -> str:
    properties = {**BASE, "target.base.path": str(tmp_path / "orders")}
    file = tmp_path / "sink.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    return str(file)


def test_what_a_terminal_would_act_upon_and_times_beyond_the_calendar_are_shown(capsys) -> None:
    # DuckDB gives times beyond the year 9999 as texts.
    times = {1: datetime(2024, 2, 29, 12, tzinfo=timezone.utc), 2: "53842-12-03 22:13:20"}
    rows = [
        {
            **{"_kafka_topic": "t", "_kafka_partition": 0, "_kafka_offset": offset, "_kafka_timestamp": time},
            **{"kind": "value", "reason": "r\x1b[31m", "value": b"a\x1b]0;title\x07\n", "replayed_instant": None},
        }
        for offset, time in times.items()
    ]
    _print_records(console(), rows, 2)
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert all(text in shown for text in ("2024-02-29 12:00:00", "53842-12-03", r"\x1b]0;title\x07\n", r"r\x1b[31m"))


def test_a_reason_with_control_characters_is_one_line_in_groups_and_after_a_replay(capsys) -> None:
    reason = "r\x1b[31m\nforged\u202e"
    first = {"topic": "t", "partition": 0, "offset": 7}
    _print_groups(console(), [{"reason": reason, "records": 2, "first": first}])
    _print_outcome(console(), ReplayPreview((), {("t", "id", 0, 7, 0): reason}), is_done=True, is_upsert=False)
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if r"r\x1b[31m\nforged\u202e" in line and "t-0 offset 7" in line] == [
        lines[1].rstrip(),
        "t-0 offset 7: r\\x1b[31m\\nforged\\u202e",
    ]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["errors"], "--config is missing"),
        (["errors", "--offset", "x", "--config", "CONFIG"], "--offset 'x' is neither an offset nor a range."),
        (["errors", "--since", "x", "--config", "CONFIG"], "--since 'x' is not a time"),
        (
            ["errors", "--offset", "5", "-c", "CONFIG", "replay", "-c", "CONFIG", "--yes"],
            "sink errors: --config, --offset before replay would change nothing. Write them after replay",
        ),
        (["errors", "--config", "CONFIG"], "orders_errors: there is no errors table. No bad record has been found yet"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(config: str, capsys, arguments: list[str], sentence: str) -> None:
    assert cli.main([config if argument == "CONFIG" else argument for argument in arguments]) == 2
    shown = capsys.readouterr().err
    assert sentence in shown
    assert shown.count("\n") == 1
