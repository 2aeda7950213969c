"""The cases of `tests/reports`, a sink for each, land through one worker, and hudi-rs reads what they should hold."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer
from hudi import HudiTableBuilder

from sink.audit.audit import audit
from sink.audit.errors import errors_of
from sink.audit.log import TopicAccess
from tests.conftest import temporary_chroot, topics
from tests.many_sinks import ManySinks
from tests.reports.case_kit import CASES, Case, compared, content
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1800), pytest.mark.thorough]

UNSENT = "record-without-a-timestamp"
"""No client sends a record without a time."""
FILES = ("value.schema.file", "schema.file")
PATIENCE = 1200


def cases() -> dict[str, Case]:
    return {path.name: Case(path) for path in sorted(CASES.iterdir()) if path.name != UNSENT}


@pytest.fixture(scope="module")
def landed(tmp_path_factory: pytest.TempPathFactory, zookeeper, kafka) -> Iterator[ManySinks]:
    """A fleet that has landed or refused each case."""
    directory = tmp_path_factory.mktemp("reports")
    with (
        temporary_chroot(zookeeper.address) as chroot,
        topics(kafka.address) as make_topic,
        ExitStack() as stack,
    ):
        shared = {
            "errors.tolerance": "all",
            "errors.max.ratio": 1,
            "spark.master": "local[2]",
            "spark.driver.memory": "2g",
        }
        fleet = ManySinks(directory, chroot, kafka.address, shared)
        stack.callback(fleet.close)
        producer = Producer({"bootstrap.servers": kafka.address})
        for name, case in cases().items():
            topic = make_topic(1)
            for record in case.records():
                timestamp = record.get("timestamp", 0)
                producer.produce(topic, content(record["value"]), content(record["key"]), 0, timestamp=timestamp)
            fleet.add(name, topic, **settings_of(case, stack.enter_context(case.written())))
        assert producer.flush(60) == 0
        fleet.start("w1")
        for case in cases().values():
            eventually(f"{case.name} has landed", lambda case=case: ended(fleet, case), PATIENCE, fleet.logs)
        yield fleet


def settings_of(case: Case, text: str) -> dict[str, object]:
    settings = yaml.safe_load(text)
    settings["hoodie.metadata.enable"] = settings.get("index.type") == "record"
    return settings | {name: str(case.directory / settings[name]) for name in FILES if name in settings}


def ended(fleet: ManySinks, case: Case) -> bool:
    if "refused" in case.expected:
        return [host.state for host in fleet.hosts(case.name).values()] == ["refused"]
    return fleet.landed(case.name) >= len(case.records())


@pytest.mark.parametrize("name", cases())
def test_a_case_lands_through_a_worker_as_another_reader_sees_it(landed: ManySinks, name: str) -> None:
    case = cases()[name]
    expected = case.expected
    if "refused" in expected:
        (host,) = landed.hosts(name).values()
        assert not [text for text in expected["refused"] if text not in host.reason], host.reason
        return
    base_path = str(landed.sinks[name]["target.base.path"])
    reasons = bad_records(f"{base_path}_errors")
    assert sorted(map(int, reasons)) == expected["bad"], reasons
    rows, expected_rows = compared(rows_of(base_path), expected["rows"])
    assert rows == expected_rows
    for offset, wanted in expected.get("reason_contains", {}).items():
        assert not [text for text in wanted if text not in reasons[offset]], reasons[offset]


@pytest.mark.parametrize("name", [name for name, case in cases().items() if "refused" not in case.expected])
def test_the_audit_of_contents_holds_for_a_case(landed: ManySinks, name: str) -> None:
    settings = landed.sinks[name]
    access = TopicAccess(landed.kafka, topics=(str(settings["kafka.topic.names"]),))
    is_global = settings.get("index.type") == "record"
    report = audit(str(settings["target.base.path"]), name, access, global_keys=is_global, content=True)
    assert report.held, report.failures
    assert report.complete, report.content


def rows_of(base_path: str) -> list[dict[str, Any]]:
    table = HudiTableBuilder.from_base_uri(Path(base_path).as_uri()).build()
    return [row for batch in table.read() for row in batch.to_pylist()]


def bad_records(base_path: str) -> dict[str, str]:
    """Returns the reasons in an errors table by offset."""
    if not Path(base_path).exists():
        return {}
    return {
        str(row["_kafka_offset"]): row["reason"]
        for batch in errors_of(base_path, ("_kafka_offset", "reason"))
        for row in batch.to_pylist()
    }
