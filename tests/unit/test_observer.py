"""Table services are begun after every tenth commit of a coordinator, and what goes wrong in them stays there."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, cast

import pytest

from coordination.errors import Unavailable
from coordination.messages import Note
from sink.config import load
from sink.observer import COMMITS_BETWEEN_SERVICES, Observer
from tests.unit.config_kit import MINIMAL
from tests.waiting import eventually

COMMITTED = Note("transaction.ended", (("transaction", 1), ("outcome", "COMMITTED"), ("records", 1), ("errors", 0)))
ABORTED = Note("transaction.ended", (("transaction", 1), ("outcome", "ABORTED"), ("records", 0), ("errors", 0)))


class Serviced:
    """A table whose services last until they are let go."""

    def __init__(self) -> None:
        self.begun = 0
        self.gate = threading.Event()
        self.error: Exception | None = None

    def services(self) -> None:
        self.begun += 1
        assert self.gate.wait(30)
        if self.error is not None:
            raise self.error


@pytest.fixture
def table() -> Serviced:
    return Serviced()


@pytest.fixture
def observer(table: Serviced, tmp_path: Path) -> Observer:
    config = tmp_path / "sink.yaml"
    config.write_text(MINIMAL)
    return Observer(load(config, {}), cast(Any, table))


def commit(observer: Observer, times: int) -> None:
    for _ in range(times):
        observer.note(COMMITTED)


def test_they_begin_after_ten_commits_and_delay_none_of_the_next(observer: Observer, table: Serviced) -> None:
    commit(observer, COMMITS_BETWEEN_SERVICES - 1)
    observer.note(ABORTED)
    assert table.begun == 0
    commit(observer, 1)
    eventually("services", lambda: table.begun == 1)
    commit(observer, 2 * COMMITS_BETWEEN_SERVICES)
    assert table.begun == 1
    table.gate.set()
    observer.close()


def test_a_failure_is_logged_and_they_begin_again_ten_commits_later(observer: Observer, table: Serviced) -> None:
    table.error = Unavailable("storage is away")
    table.gate.set()
    for run in (1, 2):
        commit(observer, COMMITS_BETWEEN_SERVICES)
        eventually("services", lambda run=run: table.begun == run)
        last = observer._last
        assert last is not None
        last.join(30)
    observer.close()
