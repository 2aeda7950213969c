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

from tests.chaos.__main__ import Least, run
from tests.chaos.arena import ACKNOWLEDGED
from tests.chaos.auditor import audit
from tests.chaos.nemesis import cut_off, kill_at_failpoint, kill_zookeepers

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

Damage = Callable[[Path], None]


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, Path]:
    """Exit status and directory of a run."""
    directory = tmp_path_factory.mktemp("chaos")
    faults = (kill_zookeepers, kill_at_failpoint, cut_off)
    least = Least(faults=3, takeovers=1, commits=3, points=1)
    return run(directory, Random(1), workers=2, faults=faults, least=least), directory


def test_a_fleet_under_load_loses_and_repeats_nothing_while_things_break(ended: tuple[int, Path]) -> None:
    status, directory = ended
    report = audit(str(directory / "table"), str(directory / ACKNOWLEDGED))
    assert (status, report["lost"], report["duplicated"], report["mistaken"]) == (0, 0, 0, 0)
    assert report["acknowledged"]


def _acknowledge_what_never_landed(directory: Path) -> None:
    with (directory / ACKNOWLEDGED).open("a") as file:
        file.write("0 1000000000 1000000000\n")


def _acknowledge_at_another_offset(directory: Path) -> None:
    file = directory / ACKNOWLEDGED
    first, *others = file.read_text().splitlines(keepends=True)
    partition, offset, number = map(int, first.split())
    file.write_text("".join([f"{partition} {offset + 1} {number}\n", *others]))


def _repeat_a_row(directory: Path) -> None:
    table = directory / "table"
    read = pa.Table.from_batches(HudiTableBuilder.from_base_uri(str(table)).build().read())
    file = table / str(read.column("_hoodie_file_name")[0])
    rows = pq.read_table(file)
    pq.write_table(pa.concat_tables([rows, rows.slice(0, 1)]), file)


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        (_acknowledge_what_never_landed, "lost"),
        (_acknowledge_at_another_offset, "mistaken"),
        (_repeat_a_row, "duplicated"),
    ],
)
def test_the_auditor_tells_what_was_lost_mistaken_or_repeated(
    ended: tuple[int, Path], tmp_path: Path, damage: Damage, found: str
) -> None:
    directory = tmp_path / "damaged"
    shutil.copytree(ended[1], directory, ignore=shutil.ignore_patterns("zookeeper", "kafka", "fleet", "disk"))
    damage(directory)
    report = audit(str(directory / "table"), str(directory / ACKNOWLEDGED))
    assert {what: report[what] for what in ("lost", "mistaken", "duplicated") if report[what]} == {found: 1}
