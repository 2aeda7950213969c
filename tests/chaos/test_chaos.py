"""The shortest chaos run that means something, and that its auditor can fail; `make chaos` is the long one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hudi import HudiTableBuilder

from tests.chaos.__main__ import Least, Plan, run
from tests.chaos.auditor import ACKNOWLEDGED, FINDINGS, audit
from tests.chaos.auditor.log import Sent, read_log
from tests.chaos.overlap import two_at_once
from tests.chaos.points import kill_at_failpoint
from tests.chaos.shape import APPEND, Shape

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

Damage = Callable[[Path], None]
SEED = 2
"""All ZooKeepers are killed, and a worker before they are back."""


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, Path]:
    """Exit status and directory of a run."""
    directory = tmp_path_factory.mktemp("chaos")
    least = Least(faults=2, takeovers=1, commits=3, points=1)
    plan = Plan(Shape(APPEND), ("Complete.published",), (two_at_once, kill_at_failpoint), least, workers=2)
    return run(directory, Random(SEED), plan), directory


def test_a_fleet_under_load_loses_and_repeats_nothing_while_things_break(ended: tuple[int, Path]) -> None:
    status, directory = ended
    report = audit(directory)
    assert (status, found(report)) == (0, {})
    assert report["acknowledged"]
    assert report["bad"]


def found(report: dict[str, object]) -> dict[str, object]:
    return {what: report[what] for what in FINDINGS if report[what]}


def _first(directory: Path, mark: str) -> Sent:
    return next(each for each in read_log(directory / ACKNOWLEDGED).sent if each.mark == mark)


def _acknowledge(directory: Path, mark: str, text: str) -> None:
    with (directory / ACKNOWLEDGED).open("a") as file:
        file.write(f"0 0 1000000000 {mark} {text}\n")


def _move(directory: Path, sent: Sent) -> None:
    """It was acknowledged at another offset."""
    file = directory / ACKNOWLEDGED
    line = f"{sent.round} {sent.partition} {sent.offset} {sent.mark} {sent.text}\n"
    moved = f"{sent.round} {sent.partition} {sent.offset + 10**9} {sent.mark} {sent.text}\n"
    text = file.read_text()
    assert line in text
    file.write_text(text.replace(line, moved))


def _add_row(table: Path, **changed: object) -> None:
    """One like the first, but for what is changed."""
    read = pa.Table.from_batches(HudiTableBuilder.from_base_uri(str(table)).build().read())
    file = table / str(read.column("_hoodie_file_name")[0])
    rows = pq.read_table(file)
    (row,) = rows.slice(0, 1).to_pylist()
    pq.write_table(pa.concat_tables([rows, pa.Table.from_pylist([{**row, **changed}], rows.schema)]), file)


def _land_a_bad_one(directory: Path) -> None:
    bad = _first(directory, "bad")
    _add_row(directory / "table", id=None, _kafka_partition=bad.partition, _kafka_offset=bad.offset)


DAMAGES: dict[str, Damage] = {
    "lost": lambda place: _acknowledge(place, "good", '{"id": 1000000000, "amount": 250000000.0}'),
    "mistaken": lambda place: _move(place, _first(place, "good")),
    "duplicated": lambda place: _add_row(place / "table"),
    "bad_landed": _land_a_bad_one,
    "bad_lost": lambda place: _acknowledge(place, "bad", "no JSON 1000000000"),
    "bad_mistaken": lambda place: _move(place, _first(place, "bad")),
    "bad_duplicated": lambda place: _add_row(place / "table_errors"),
    "good_set_aside": lambda place: _add_row(place / "table_errors", value=_first(place, "good").text.encode()),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_the_auditor_tells_what_was_lost_mistaken_or_repeated(
    ended: tuple[int, Path], tmp_path: Path, what: str
) -> None:
    directory = tmp_path / "damaged"
    shutil.copytree(ended[1], directory, ignore=shutil.ignore_patterns("zookeeper", "kafka", "fleet", "disk"))
    DAMAGES[what](directory)
    assert found(audit(directory)) == {what: 1}
