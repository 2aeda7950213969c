"""The oracle's model, its choices and its counts, without a table."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from tests.rewrites.model import Change, Model, difference, readable
from tests.rewrites.moments import SIGNS, Watch, moments
from tests.rewrites.named import NAMED
from tests.rewrites.profiles import Profile
from tests.rewrites.run import COLUMNS, MINIMUM, earlier_results, line_of, too_little
from tests.rewrites.steps import FAULTS, KILL, MEANWHILE, WAIT, sequence
from tests.rewrites.world import Report


def test_a_change_replaces_the_row_of_its_key_unless_it_is_older() -> None:
    model = Model(("id",), "at")
    model.land("sink", {0: 3}, [Change({"id": 1, "at": 5}), Change({"id": 1, "at": 4}), Change({"id": 2, "at": 1})])
    assert model.rows == [{"id": 2, "at": 1}, {"id": 1, "at": 5}]
    model.land("sink", {0: 4}, [Change({"id": 1, "at": 5}, deletes=True)])
    assert model.rows == [{"id": 2, "at": 1}]
    assert (model.now.sinks["sink"].number, model.now.sinks["sink"].ends) == (2, {0: 4})


def test_a_change_that_is_older_than_the_deletion_of_its_row_leaves_it_open_until_a_newer_one() -> None:
    model = Model(("id",), "at")
    model.land("sink", {0: 2}, [Change({"id": 1, "at": 5}, deletes=True), Change({"id": 1, "at": 4})])
    assert model.specified([{"id": 1, "at": 4}, {"id": 2, "at": 1}]) == [{"id": 2, "at": 1}]
    assert model.rows == []
    model.land("sink", {0: 3}, [Change({"id": 1, "at": 6})])
    assert model.rows == model.specified(model.rows) == [{"id": 1, "at": 6}]


def test_a_restore_brings_rows_and_checkpoints_back() -> None:
    model = Model(("id",), None)
    model.land("sink", {0: 1}, [Change({"id": 1})])
    model.save()
    model.land("sink", {0: 2}, [Change({"id": 2})])
    model.restore()
    assert model.rows == [{"id": 1}]
    assert model.now.sinks["sink"].ends == {0: 1}


def test_a_row_that_is_there_twice_differs_from_one_and_a_null_from_no_column() -> None:
    assert not difference(readable([{"id": 1}]), readable([{"id": 1, "note": None, "_hoodie_commit_time": "1"}]))
    assert difference(readable([{"id": 1}]), readable([{"id": 1}, {"id": 1}])) == (
        "0 rows are missing, 1 are wrong: [] against [{'id': 1}]"
    )


def test_a_watch_tells_files_that_come_and_go(tmp_path: Path) -> None:
    timeline = tmp_path / ".hoodie" / "timeline"
    timeline.mkdir(parents=True)
    (timeline / "20260101000000000.clean.requested").touch()
    (tmp_path / "a.parquet").touch()
    planned, deleting = Watch(tmp_path, "clean", "planned"), Watch(tmp_path, "clean", "deleting")
    assert not planned()
    assert not deleting()
    (timeline / "20260101000000001.clean.requested").touch()
    (tmp_path / "a.parquet").unlink()
    assert planned()
    assert deleting()


def test_seeds_choose_every_kind_of_table_fault_and_moment() -> None:
    profiles, seen = Counter[str](), Counter[str]()
    for seed in range(500):
        random = Random(seed)
        profile = Profile.of(random)
        profiles[f"{profile.operation} {profile.merges_on_read} {profile.index} {profile.partitioned}"] += 1
        for step in sequence(random, profile, 8):
            seen[step.kind] += 1
            seen[f"meanwhile {step.meanwhile}"] += bool(step.meanwhile)
            if step.fault is not None and step.fault.kind in (KILL, *FAULTS):
                seen[f"{step.fault.action} {step.fault.moment}"] += 1
                seen[step.fault.kind] += 1
            elif step.fault is not None and step.fault.kind == WAIT:
                seen[f"{WAIT} {step.fault.moment}"] += 1
    assert len(profiles) == 12
    assert {f"{action} {moment}" for action in SIGNS for moment in moments(action, True)} <= set(seen)
    assert {f"meanwhile {what}" for what in MEANWHILE} <= set(seen)
    assert set(FAULTS) <= set(seen)
    assert len([name for name in seen if name.startswith(WAIT)]) == 6


def test_the_same_seed_chooses_the_same_sequence() -> None:
    first, second = (sequence(random, Profile.of(random), 8) for random in (Random(7), Random(7)))
    assert first == second


def test_a_run_in_which_too_little_happened_is_told() -> None:
    enough = {name: int(100 * least) for name, least in MINIMUM.items()}
    assert not too_little(enough, 100)
    assert too_little({**enough, "killed": 1}, 100) == {"killed": 1}
    assert not too_little({**enough, "faults planned": 240}, 100)
    assert too_little({**enough, "faults planned": 250}, 100) == {"faults that struck": 80}


def test_a_few_sequences_that_compare_nothing_and_meet_no_fault_show_too_little() -> None:
    few = {**dict.fromkeys(MINIMUM, 5), "comparisons": 0, "comparisons with hudi-rs": 0, "commits": 50}
    few |= {**dict.fromkeys(FAULTS, 0), "faults planned": 9, "killed": 2}
    assert too_little(few, 5).keys() == {
        "comparisons",
        "comparisons with hudi-rs",
        "faults that struck",
    }


def test_results_have_a_line_a_seed_from_which_a_run_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "results.tsv"
    assert earlier_results(file) == {}
    report = Report(3, "append", "lost\nrows", 1.5, 2.5, Counter(steps=2))
    file.write_text("\t".join(COLUMNS) + "\n" + line_of(report) + "\n")
    [(seed, fields)] = earlier_results(file).items()
    assert seed == 3
    assert dict(zip(COLUMNS, fields, strict=True)) == {
        "seed": "3",
        "seconds": "1.5",
        "cpu": "2.5",
        "profile": "append",
        "counts": '{"steps": 2}',
        "failure": "lost rows",
    }


@pytest.mark.parametrize("number", [4863, 7969, 8259, 5110, 9472])
def test_hudis_own_history_has_its_sequences(number: int) -> None:
    assert [name for name in NAMED if name.endswith(str(number))]
