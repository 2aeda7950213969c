"""The shortest useful chaos run, and damage that its auditor has to find; `make chaos` is the long run."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hudi import HudiTableBuilder

from tests.chaos.__main__ import Minimum, Plan, run
from tests.chaos.auditor import ACKNOWLEDGED, FINDINGS, OTHERS, audit
from tests.chaos.auditor.appended import FIRST_OTHER_ID
from tests.chaos.auditor.log import SentEvent, read_log
from tests.chaos.overlap import two_at_once
from tests.chaos.points import kill_at_failpoint
from tests.chaos.shape import APPEND, Shape

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

Damage = Callable[[Path], None]
SEED = 2
"""This seed kills all ZooKeepers, and a worker before they are back."""


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, Path]:
    """Returns exit status and directory of a run."""
    directory = tmp_path_factory.mktemp("chaos")
    minimum = Minimum(faults=2, takeovers=1, commits=3, points=1)
    # Other fleets run beside this one: at the full rate its backlog would grow faster than it lands.
    plan = Plan(Shape(APPEND, rate=30.0), ("Complete.published",), (two_at_once, kill_at_failpoint), minimum, workers=2)
    return run(directory, Random(SEED), plan), directory


def test_a_fleet_under_load_loses_and_repeats_nothing_while_things_break(finished_run: tuple[int, Path]) -> None:
    status, directory = finished_run
    report = audit(directory)
    assert (status, findings_in(report)) == (0, {})
    assert report["acknowledged"]
    assert report["bad"]


def findings_in(report: dict[str, object]) -> dict[str, object]:
    return {finding: report[finding] for finding in FINDINGS if report[finding]}


def _first(directory: Path, mark: str) -> SentEvent:
    return next(event for event in read_log(directory / ACKNOWLEDGED).events if event.mark == mark)


def _acknowledge(directory: Path, mark: str, text: str) -> None:
    with (directory / ACKNOWLEDGED).open("a") as file:
        file.write(f"0 0 1000000000 {mark} {text}\n")


def _move(directory: Path, event: SentEvent) -> None:
    """Rewrites the log as if the event had been acknowledged at another offset."""
    file = directory / ACKNOWLEDGED
    line = f"{event.round} {event.partition} {event.offset} {event.mark} {event.text}\n"
    moved = f"{event.round} {event.partition} {event.offset + 10**9} {event.mark} {event.text}\n"
    text = file.read_text()
    assert line in text
    file.write_text(text.replace(line, moved))


def _add_row(table: Path, **changed: object) -> None:
    """Adds a copy of the first row, with the changed columns."""
    table_rows = pa.Table.from_batches(HudiTableBuilder.from_base_uri(str(table)).build().read())
    file = table / str(table_rows.column("_hoodie_file_name")[0])
    rows = pq.read_table(file)
    (row,) = rows.slice(0, 1).to_pylist()
    pq.write_table(pa.concat_tables([rows, pa.Table.from_pylist([{**row, **changed}], rows.schema)]), file)


def _land_a_bad_event(directory: Path) -> None:
    bad = _first(directory, "bad")
    _add_row(directory / "table", id=None, _kafka_partition=bad.partition, _kafka_offset=bad.offset)


def _acknowledge_to_another(directory: Path, number: int) -> None:
    (directory / OTHERS).write_text(f"{number}\n")


def _add_rows_of_another(directory: Path, number: int) -> None:
    for _ in range(2):
        _add_row(directory / "table", id=number)


DAMAGES: dict[str, Damage] = {
    "lost": lambda directory: _acknowledge(directory, "good", '{"id": 1000000000, "amount": 250000000.0}'),
    "mistaken": lambda directory: _move(directory, _first(directory, "good")),
    "duplicated": lambda directory: _add_row(directory / "table"),
    "bad_landed": _land_a_bad_event,
    "bad_lost": lambda directory: _acknowledge(directory, "bad", "no JSON 1000000000"),
    "bad_mistaken": lambda directory: _move(directory, _first(directory, "bad")),
    "bad_duplicated": lambda directory: _add_row(directory / "table_errors"),
    "good_set_aside": lambda directory: _add_row(
        directory / "table_errors", value=_first(directory, "good").text.encode()
    ),
    "from_another_cluster": lambda directory: _add_row(directory / "table", id=FIRST_OTHER_ID),
    "others_lost": lambda directory: _acknowledge_to_another(directory, -1),
    "others_duplicated": lambda directory: _add_rows_of_another(directory, -1),
}


@pytest.mark.parametrize("finding", DAMAGES)
def test_the_auditor_tells_what_was_lost_mistaken_or_repeated(
    finished_run: tuple[int, Path], tmp_path: Path, finding: str
) -> None:
    directory = tmp_path / "damaged"
    shutil.copytree(finished_run[1], directory, ignore=shutil.ignore_patterns("zookeeper", "kafka", "fleet", "disk"))
    DAMAGES[finding](directory)
    assert findings_in(audit(directory)) == {finding: 1}
