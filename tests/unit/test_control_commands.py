"""Commands on several sinks exit with 0, with 1 for an overdue answer, with 2 for a request that failed."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from coordination.errors import Conflict, SinkError
from sink.commands.control import _print_answers
from sink.operations.chosen import SinkResult
from sink.operations.control import NoSuchWorker, Overdue
from tests.unit.settings_kit import minimal_settings


@pytest.mark.parametrize(
    ("errors", "status"),
    [
        ((None, None), 0),
        ((None, NoSuchWorker("not here")), 0),
        ((None, Conflict("it joins later")), 2),
        ((NoSuchWorker("nowhere"), NoSuchWorker("nowhere")), 2),
        ((None, Overdue("late")), 1),
        ((Overdue("late"), Conflict("paused")), 2),
    ],
)
def test_the_worst_answer_decides_but_a_drained_worker_need_not_be_in_every_sink(
    errors: tuple[SinkError | None, ...], status: int, tmp_path: Path
) -> None:
    settings = minimal_settings(tmp_path)
    answers = [SinkResult(settings.name, settings, None if error else "done", error) for error in errors]
    try:
        _print_answers(answers)
        exit_status = 0
    except typer.Exit as exit_:
        exit_status = exit_.exit_code
    assert exit_status == status
