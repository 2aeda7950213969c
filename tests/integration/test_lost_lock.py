"""A table service that stands still under the table lock for longer than its session lasts changes nothing when it
wakes: the next holder has gone on.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from sink.hudi import cleaning, completion
from sink.hudi.archiving import Archiving
from sink.hudi.client import HudiClient
from sink.hudi.lock import TableLocks
from sink.hudi.options import service_options
from sink.hudi.table_services import HudiTableServices
from sink.hudi.timeline import SINK_KEY
from sink.hudi.written_plan import WrittenPlan, write_plan
from sink.write.rows.row_spec import table_schema
from tests.integration.conftest import MakeDriver, Open
from tests.integration.rewrites_kit import service_client
from tests.integration.table_kit import CLUSTERING, SINK, Driver, by_name
from tests.integration.test_overtaken import SINGLE_GROUPS
from tests.integration.test_rewrites import EAGER
from tests.integration.upsert_kit import BUCKETS, ON_READ, Upserts, assert_rows, change, send

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

CLUSTERED = {**CLUSTERING, **SINGLE_GROUPS}
LOST = "no longer holds it"
RETENTION = {
    "hoodie__metadata__enable": "true",
    "hoodie__keep__min__commits": "3",
    "hoodie__keep__max__commits": "4",
    "hoodie__clean__commits__retained": "1",
}


MOMENTS: dict[str, tuple[Any, str]] = {
    "new plan": (WrittenPlan, "name_columns"),
    "plan of a dead process": (HudiTableServices, "_pending"),
}
"""The steps after which a rewrite stands still."""


class Frozen:
    """Stops the `turn`th call of a step: the znode of the table lock goes, another worker runs all services, and then
    the call goes on.
    """

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, owner: Any, step: str, turn: int, meanwhile: Callable[[], None]
    ) -> None:
        self.woke = False
        original, calls = getattr(owner, step), 0

        def stopped(*arguments: Any, **more: Any) -> Any:
            nonlocal calls
            calls += 1
            is_turn = calls == turn
            result = original(*arguments, **more)
            if is_turn:
                meanwhile()
                self.woke = True
            return result

        monkeypatch.setattr(owner, step, stopped)


class Worker:
    """A worker that runs the services of a table of this driver or of these upserts."""

    def __init__(self, table: Driver | Upserts, client: KazooClient) -> None:
        self._client, self.locks = client, TableLocks(client, table.settings.table.lock)
        settings = table.settings
        avro = table_schema(settings.table, settings.records).avro(settings.table_name)
        self.hudi = HudiClient(table.spark, settings.table.store, avro, service_options(settings.table))
        self.services = HudiTableServices(self.hudi, settings.table, self.locks)

    def lose_lock(self) -> None:
        """Ends the lock's znodes, as ZooKeeper does with those of a session that it has not heard of for long."""
        [znode] = self._client.get_children(self.locks.path)
        self._client.delete(f"{self.locks.path}/{znode}")


def complete(base: str) -> set[str]:
    """Returns the files of complete instants, active and archived, of the table and of its metadata table."""
    timelines = (".hoodie/timeline", ".hoodie/metadata/.hoodie/timeline")
    return {str(file.relative_to(base)) for timeline in timelines for file in Path(base, timeline).glob("**/[!.]*_*")}


def reason_of_frozen(
    monkeypatch: pytest.MonkeyPatch, late: Worker, service: str, moment: str, meanwhile: Callable[[], None]
) -> str:
    """Freezes a rewrite before a step that changes the table. Returns why it failed then."""
    frozen = Frozen(monkeypatch, *MOMENTS[moment], 1, meanwhile)
    results = by_name(late.services.run())
    assert frozen.woke, results
    return results[service].reason


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_compaction_that_has_lost_the_table_lock_is_not_completed_and_undoes_nothing(
    open_upserts: Open,
    kafka,
    zookeeper_client: KazooClient,
    monkeypatch: pytest.MonkeyPatch,
    moment: str,
) -> None:
    upserts = open_upserts(**ON_READ, **EAGER, **BUCKETS)
    send(kafka.address, upserts.topic, [change(key, at) for at in (1, 2, 3) for key in range(10)])
    upserts.land((0, 0, 10))
    upserts.land((0, 10, 20))
    if moment == "plan of a dead process":
        dead = service_client(upserts)
        write_plan(dead, "Compaction", dead.schedule("Compaction", {SINK_KEY: SINK}))
    late, successor = Worker(upserts, zookeeper_client), Worker(upserts, zookeeper_client)
    seen: list[set[str]] = []

    def meanwhile() -> None:
        late.lose_lock()
        assert by_name(successor.services.run())["compaction"].instant
        seen.append(complete(upserts.settings.base_path))

    assert LOST in reason_of_frozen(monkeypatch, late, "compaction", moment, meanwhile)
    assert complete(upserts.settings.base_path) == seen[0]
    assert_rows(upserts, {key: {"at": 2, "number": 2} for key in range(10)})
    upserts.land((0, 20, 30))
    assert not by_name(upserts.table.services())["compaction"].reason
    assert_rows(upserts, {key: {"at": 3, "number": 3} for key in range(10)})


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_clustering_that_has_lost_the_table_lock_is_neither_completed_nor_dropped(
    make_driver: MakeDriver, zookeeper_client: KazooClient, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    driver = make_driver(**CLUSTERING, hoodie__metadata__enable="true")
    for number in (1, 2):
        driver.land(number)
    late, successor = Worker(driver, zookeeper_client), Worker(driver, zookeeper_client)
    is_pending = moment == "plan of a dead process"
    if is_pending:
        # Its process is alive after all, and completes it.
        instant = late.hudi.schedule("Clustering", {SINK_KEY: SINK})
        written = write_plan(successor.hudi, "Clustering", instant)
    seen: list[set[str]] = []

    def meanwhile() -> None:
        late.lose_lock()
        if is_pending:
            with successor.locks("complete clustering") as require_held:
                written.complete(require_held)
        else:
            assert by_name(successor.services.run())["clustering"].instant
        seen.append(complete(driver.settings.base_path))

    assert LOST in reason_of_frozen(monkeypatch, late, "clustering", moment, meanwhile)
    assert seen[0] <= complete(driver.settings.base_path)
    assert not [name for name in complete(driver.settings.base_path) - seen[0] if "rollback" in name]
    assert driver.count() == driver.count(metadata=False) == 20


@pytest.mark.parametrize("service", ["compaction", "clustering"])
def test_a_rewrite_that_loses_the_table_lock_in_the_metadata_table_is_completed_by_another_worker(
    open_upserts: Open, kafka, zookeeper_client: KazooClient, monkeypatch: pytest.MonkeyPatch, service: str
) -> None:
    upserts = open_upserts(**EAGER, **({**ON_READ, **BUCKETS} if service == "compaction" else CLUSTERED))
    send(kafka.address, upserts.topic, [change(key, at) for at in (1, 2) for key in range(10)])
    upserts.land((0, 0, 10))
    upserts.land((0, 10, 20))
    late, successor = Worker(upserts, zookeeper_client), Worker(upserts, zookeeper_client)
    # Hudi's own lock, of the process, keeps the successor out until the late worker has failed.
    frozen = Frozen(monkeypatch, completion, "_write_to_metadata_table", 1, late.lose_lock)
    results = by_name(late.services.run())
    assert frozen.woke, results
    assert LOST in results[service].reason
    assert not rewrites(upserts, service), "the late worker has completed what another one may carry out meanwhile"
    assert by_name(successor.services.run())[service].instant
    assert len(rewrites(upserts, service)) == 1
    assert_rows(upserts, {key: {"at": 2, "number": 2} for key in range(10)})


def rewrites(upserts: Upserts, service: str) -> list[Path]:
    """Returns the completions of the service on the timeline."""
    action = {"compaction": "commit", "clustering": "replacecommit"}[service]
    return list(Path(upserts.settings.base_path, ".hoodie", "timeline").glob(f"[!.]*_*.{action}"))


@pytest.mark.parametrize(
    ("step", "turn"),
    [pytest.param("obsolete", 1, id="before files go"), pytest.param("pending", 2, id="before completion")],
)
def test_a_cleaning_that_has_lost_the_table_lock_ends(
    make_driver: MakeDriver, zookeeper_client: KazooClient, monkeypatch: pytest.MonkeyPatch, step: str, turn: int
) -> None:
    driver = make_driver(**CLUSTERING, **RETENTION)
    for number in range(1, 5):
        driver.land(number)
        driver.table.services()
    driver.land(5)
    late, successor = Worker(driver, zookeeper_client), Worker(driver, zookeeper_client)
    seen: list[set[str]] = []

    def meanwhile() -> None:
        late.lose_lock()
        assert by_name(successor.services.run())["cleaning"].instant
        seen.append(cleanings(driver))

    frozen = Frozen(monkeypatch, cleaning, step, turn, meanwhile)
    results = by_name(late.services.run())
    assert frozen.woke, results
    assert LOST in results["cleaning"].reason
    assert cleanings(driver) == seen[0]
    assert driver.count() == driver.count(metadata=False) == 50


def cleanings(driver: Driver) -> set[str]:
    return {name for name in complete(driver.settings.base_path) if name.endswith(".clean")}


def test_an_archiving_that_has_lost_the_table_lock_publishes_nothing(
    make_driver: MakeDriver, zookeeper_client: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = make_driver(**{**RETENTION, "hoodie__metadata__enable": "false"})
    for number in range(1, 8):
        driver.land(number)
    late = Worker(driver, zookeeper_client)
    seen: list[set[str]] = []

    def meanwhile() -> None:
        late.lose_lock()
        seen.append(manifests(driver))

    frozen = Frozen(monkeypatch, Archiving, "_write", 1, meanwhile)
    results = by_name(late.services.run())
    assert frozen.woke, results
    assert LOST in results["archiving"].reason
    assert manifests(driver) == seen[0]
    assert not by_name(driver.table.services())["archiving"].reason
    assert driver.count() == 70


def manifests(driver: Driver) -> set[str]:
    return {file.name for file in Path(driver.settings.base_path, ".hoodie", "timeline", "history").glob("manifest_*")}
