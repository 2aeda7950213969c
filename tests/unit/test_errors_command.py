"""`sink errors` says in one sentence what it cannot do."""

from __future__ import annotations

from pathlib import Path

import pytest

from sink import cli
from tests.unit.test_config_errors import BASE


@pytest.fixture
def config(tmp_path: Path) -> str:
    given = {**BASE, "target.base.path": str(tmp_path / "orders")}
    file = tmp_path / "sink.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
    return str(file)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["errors"], "--config is missing"),
        (["errors", "--offset", "x", "--config", "CONFIG"], "--offset 'x' is neither an offset nor a range of them"),
        (["errors", "--since", "x", "--config", "CONFIG"], "--since 'x' is no time"),
        (["errors", "--config", "CONFIG"], "orders_errors: there is no errors table; no bad record has been found yet"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(config: str, capsys, arguments: list[str], said: str) -> None:
    assert cli.main([config if each == "CONFIG" else each for each in arguments]) == 2
    shown = capsys.readouterr().err
    assert said in shown
    assert shown.count("\n") == 1
