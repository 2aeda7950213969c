"""One process hosts many sinks: what becomes of one leaves the others as they were."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from sink.devtools.local.workers import Part
from tests.fleet import produce
from tests.many_sinks import ManySinks
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]
RECORDS = 600


@pytest.fixture
def many(tmp_path: Path, chroot: str, kafka) -> Iterator[ManySinks]:
    it = ManySinks(tmp_path, chroot, kafka.address)
    yield it
    it.close()


@pytest.fixture
def filled(kafka, topic):
    """Makes a topic of two partitions that holds `RECORDS` records."""

    def make() -> str:
        name = str(topic(partitions=2))
        produce(kafka.address, name, RECORDS, 2)
        return name

    return make


def test_a_fleet_of_sinks_lands_each_topic_once_through_a_poisoned_sink_a_kill_and_a_reload(
    many: ManySinks, filled, tmp_path: Path
) -> None:
    topics = {f"s{number}": filled() for number in range(4)}
    for name, topic in topics.items():
        many.add(name, topic)
    # A directory that holds something else is no table: alone, this sink would end its worker with status 2.
    (tmp_path / "lake" / "poisoned").mkdir(parents=True)
    (tmp_path / "lake" / "poisoned" / "notes.txt").write_text("not a table")
    many.add("poisoned", filled())
    many.start("w1")
    many.wait_landed(topics, RECORDS)
    assert '"event": "sink.refused"' in many.log("w1")
    assert many.workers["w1"].running

    # Another worker gets its share, and takes over all that the first one led when that is killed.
    many.start("w2")
    eventually(
        "w2 has joined each sink",
        lambda: all(len(many.view(name).members) == 2 for name in topics),
        240,
        many.logs,
    )
    eventually(
        "both workers have refused the poisoned sink",
        lambda: [hosted.state for hosted in many.hosts("poisoned").values()] == ["refused", "refused"],
        120,
        many.logs,
    )
    eventually(
        "the coordinators are shared",
        lambda: sorted(many.leader(name) for name in topics) == ["w1", "w1", "w2", "w2"],
        120,
        many.logs,
    )
    many.workers["w1"].kill()
    for topic in topics.values():
        produce(many.kafka, topic, RECORDS, 2, first=RECORDS)
    many.wait_landed(topics, 2 * RECORDS)
    assert {many.leader(name) for name in topics} == {"w2"}

    # A new sink is taken up and an old one let go, without a restart.
    many.add("late", filled())
    gone = many.sinks.pop("s0")
    many.configure("w2")
    many.workers["w2"].signal(signal.SIGHUP, Part.PYTHON)
    many.wait_landed(["late"], RECORDS)
    eventually("s0 is released", lambda: '"event": "sink.released"' in many.log("w2"), 120, many.logs)
    assert many.view("s0").members == ()
    many.sinks["s0"] = gone

    many.workers["w2"].signal(signal.SIGTERM, Part.PYTHON)
    assert many.workers["w2"].wait(120) == 0
    for name in topics:
        many.assert_exactly_once(name, 2 * RECORDS)
    many.assert_exactly_once("late", RECORDS)
