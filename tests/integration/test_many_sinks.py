"""One process hosts many sinks: what happens to one leaves the others as they were. One fleet goes through all tests,
in their order.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from typer.testing import CliRunner

from sink.cli import app
from tests.conftest import TopicFactory, temporary_chroot, topics
from tests.fleet import produce
from tests.many_sinks import ManySinks
from tests.waiting import eventually
from tests.workers import Part

pytestmark = [pytest.mark.integration, pytest.mark.steps, pytest.mark.timeout(900)]
RECORDS = 600
PARTITIONS = 2
POISONED = "poisoned"
MISSPELT = "misspelt"
GOOD = ("s0", "s1", "s2", "s3")


@dataclass
class Hosted:
    """A fleet, with the topic of each sink and the number of its records."""

    fleet: ManySinks
    make_topic: TopicFactory
    topics: dict[str, str] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)

    def add(self, name: str) -> None:
        self.topics[name] = self.make_topic(PARTITIONS)
        self.fleet.add(name, self.topics[name])
        self.send(name)

    def send(self, name: str) -> None:
        first = self.sent.get(name, 0)
        produce(self.fleet.kafka, self.topics[name], RECORDS, PARTITIONS, first=first)
        self.sent[name] = first + RECORDS

    def wait_landed(self, *names: str) -> None:
        for name in names:
            self.fleet.wait_landed([name], self.sent[name])

    def wait(self, what: str, true: Callable[[], object]) -> None:
        eventually(what, true, 240, self.fleet.logs)


@pytest.fixture(scope="module")
def hosted(tmp_path_factory: pytest.TempPathFactory, zookeeper, kafka) -> Iterator[Hosted]:
    directory = tmp_path_factory.mktemp("many")
    with temporary_chroot(zookeeper.address) as chroot, topics(kafka.address) as make_topic:
        hosted_sinks = Hosted(ManySinks(directory, chroot, kafka.address), make_topic)
        try:
            for name in (*GOOD, POISONED):
                hosted_sinks.add(name)
            # A directory that holds something else is not a table: alone, this sink would end its worker with status 2.
            (directory / "lake" / POISONED).mkdir(parents=True)
            (directory / "lake" / POISONED / "notes.txt").write_text("not a table")
            hosted_sinks.fleet.add(MISSPELT, hosted_sinks.make_topic(PARTITIONS), **{"schema.ddl": "id BIGNIT"})
            hosted_sinks.fleet.start("w1")
            yield hosted_sinks
        finally:
            hosted_sinks.fleet.close()


def test_a_sink_that_cannot_be_hosted_is_refused_and_the_others_land(hosted: Hosted) -> None:
    hosted.wait_landed(*GOOD)
    assert '"event": "sink.refused"' in hosted.fleet.log("w1")
    assert hosted.fleet.workers["w1"].running


def test_a_sink_whose_settings_cannot_be_used_shows_in_status_and_the_others_land(hosted: Hosted) -> None:
    (host,) = hosted.fleet.hosts(MISSPELT).values()
    assert host.state == "refused"
    assert "BIGNIT" in host.reason
    config = str(hosted.fleet.directory / "w1" / "fleet.yaml")
    shown = CliRunner().invoke(app, ["status", "--json", "--no-lag", "--config", config])
    sinks = {sink["sink"]: sink for sink in json.loads(shown.stdout)["sinks"]}
    assert shown.exit_code == 1
    assert {name: sink["healthy"] for name, sink in sinks.items()} == {
        **dict.fromkeys(GOOD, True),
        POISONED: False,
        MISSPELT: False,
    }
    assert "notes.txt" in sinks[POISONED]["reasons"][0]["text"]
    assert "BIGNIT" in sinks[MISSPELT]["reasons"][0]["text"]


def test_a_worker_that_joins_gets_its_share_of_the_coordinators(hosted: Hosted) -> None:
    fleet = hosted.fleet
    fleet.start("w2")
    hosted.wait("w2 has joined each sink", lambda: all(len(fleet.view(name).members) == 2 for name in GOOD))
    hosted.wait(
        "both workers have refused the poisoned sink",
        lambda: [host.state for host in fleet.hosts(POISONED).values()] == ["refused", "refused"],
    )
    hosted.wait(
        "the coordinators are shared",
        lambda: sorted(fleet.leader(name) for name in GOOD) == ["w1", "w1", "w2", "w2"],
    )


def test_what_a_killed_worker_led_is_taken_over_and_goes_on(hosted: Hosted) -> None:
    hosted.fleet.workers["w1"].kill()
    for name in GOOD:
        hosted.send(name)
    hosted.wait_landed(*GOOD)
    assert {hosted.fleet.leader(name) for name in GOOD} == {"w2"}


def test_a_reload_takes_up_new_and_fixed_sinks_and_lets_an_old_one_go(hosted: Hosted) -> None:
    fleet = hosted.fleet
    hosted.add("late")
    hosted.add(MISSPELT)
    released = fleet.sinks.pop("s0")
    fleet.configure("w2")
    fleet.workers["w2"].signal(signal.SIGHUP, Part.PYTHON)
    hosted.wait_landed("late", MISSPELT)
    hosted.wait("s0 is released", lambda: '"event": "sink.released"' in fleet.log("w2"))
    assert fleet.view("s0").members == ()
    fleet.sinks["s0"] = released


def test_a_worker_that_is_stopped_ends_with_status_0_and_each_record_is_there_once(hosted: Hosted) -> None:
    worker = hosted.fleet.workers["w2"]
    worker.signal(signal.SIGTERM, Part.PYTHON)
    assert worker.wait(120) == 0
    for name in (*GOOD, "late", MISSPELT):
        hosted.fleet.assert_exactly_once(name, hosted.sent[name])
