"""Sequences with a name: the losses that were seen before, and Hudi's own history of the kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import replace as with_
from typing import Any

from tests.rewrites.moments import METADATA_BEGUN
from tests.rewrites.profiles import Profile
from tests.rewrites.steps import DIES_LATE, KILL, PAUSE, REFUSE, WAIT, Fault, Step

_ON_READ = Profile("upsert", True, "record", False, False, True, False, 2)
_ON_WRITE = Profile("upsert", False, "bloom", True, False, True, True, 2)


@dataclass(frozen=True, slots=True)
class Named:
    """A sequence, and what it repeats."""

    repeats: str
    profile: Profile
    steps: tuple[Step, ...]


def _waiting(point: str, meanwhile: str) -> Step:
    action = {"Compaction": "compaction", "Clustering": "clustering"}[point.partition(".")[0]]
    return Step("services", Fault(WAIT, action, point), meanwhile)


def _begin(*steps: Any) -> tuple[Step, ...]:
    return (Step("land"), Step("land"), *(Step(step) if isinstance(step, str) else step for step in steps))


_DIES = Step("services", Fault(KILL, "compaction", "in the metadata table"))
_DIES_LATE = Step("services", Fault(DIES_LATE, "compaction", "begun"), "land")
_REFUSED = Step("services", Fault(REFUSE, "compaction", "in the metadata table"))
_STOPPED = Step("services", Fault(PAUSE, "compaction", "files"), "services")

NAMED: Mapping[str, Named] = {
    "a compaction dies between metadata table and timeline": Named(
        "point 1", with_(_ON_READ, index="bucket"), _begin(_DIES, "land")
    ),
    "a column comes while a compaction is written": Named(
        "point 2", with_(_ON_READ, index="bucket"), _begin("open with columns", _waiting("Compaction.written", "close"))
    ),
    "a rollback that another writer planned and left": Named(
        "point 6", _ON_READ, _begin(Step("rolled back by another", Fault("", "rollback", "planned")))
    ),
    "an attempt overtaken and then killed": Named(
        "files that a compaction wrote late are left when clustering, cleaning and archiving have followed",
        with_(_ON_READ, clustering=True, partitioned=True, keep=1),
        _begin(_DIES_LATE, *["land", "services"] * 4),
    ),
    "an attempt stopped in the metadata table": Named(
        "a compaction that was carried out again is completed a second time in the metadata table",
        with_(_ON_READ, index="bucket"),
        _begin(Step("services", Fault(PAUSE, "compaction", METADATA_BEGUN), "services"), "land", "services"),
    ),
    "an attempt that dies in the metadata table": Named(
        "the metadata table names files of a compaction that another worker has completed with other files",
        with_(_ON_READ, index="bucket"),
        _begin(Step("services", Fault(DIES_LATE, "compaction", METADATA_BEGUN), "services"), "land", "services"),
    ),
    "a dropped clustering that writes into the metadata table late": Named(
        "readers take what it wrote for complete when the metadata table's timeline has forgotten the instant",
        with_(_ON_WRITE, partitioned=False, keep=1),
        _begin(Step("services", Fault(PAUSE, "clustering", METADATA_BEGUN), "land"), *["land", "services"] * 5),
    ),
    **{
        f"a store that refuses the completion of a compaction, {place}": Named(
            "the metadata table has a compaction that the timeline does not have, and its process lives",
            with_(_ON_READ, index="bucket", on_s3=place == "on S3"),
            _begin(_REFUSED, "land", "services"),
        )
        for place in ("on a disk", "on S3")
    },
    **{
        f"an attempt stopped in mid-file, {place}": Named(
            "two attempts at a compaction write files, and the first one goes on when the second has completed",
            with_(_ON_READ, index="bucket", on_s3=place == "on S3"),
            _begin(_STOPPED, "land", "services"),
        )
        for place in ("on a disk", "on S3")
    },
    "apache/hudi issue 4863": Named(
        "a transaction is rolled back while a compaction runs that was planned since its files were written",
        with_(_ON_READ, index="bucket"),
        _begin("open", _waiting("Compaction.scheduled", "open rolled back")),
    ),
    "apache/hudi issue 7969": Named(
        "log files whose transaction was open when a compaction was planned, and completes before it does",
        with_(_ON_READ, index="bucket"),
        _begin("open", _waiting("Compaction.written", "close")),
    ),
    "apache/hudi issue 8259": Named(
        "a clustering of a table whose partition column is in the middle of its columns, and changes of its rows",
        with_(_ON_WRITE, hive_style=True),
        _begin("services", "land", "services"),
    ),
    "apache/hudi pull request 5110": Named(
        "log files that are written while a compaction is pending, read by way of the metadata table",
        with_(_ON_READ, index="bucket", partitioned=True),
        _begin(_waiting("Compaction.scheduled", "land")),
    ),
    "apache/hudi pull request 9472": Named(
        "a table partition is dropped while a clustering is pending that replaces its files",
        _ON_WRITE,
        _begin(_waiting("Clustering.scheduled", "drop partition"), _waiting("Clustering.written", "drop partition")),
    ),
}
