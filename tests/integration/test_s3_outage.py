"""A store that refuses, cuts, hangs or is slow is told once, and its return; nothing is divided, lost or doubled."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from coordination.errors import TableError
from coordination.state.tree import KeeperView
from tests.fleet import Fleet, produce
from tests.integration.conftest import METADATA, PARTITIONS, MakeFleet
from tests.storage.s3_proxy import CUT, SILENT, S3Proxy
from tests.storage.s3_server import Store

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1500)]

ROUND = 900
BACK_SECONDS = 30.0
STOP_SECONDS = 85.0
"""Below the 90 s that the service unit allows."""
Break = Callable[[S3Proxy], None]
FAULTS: Mapping[str, Break] = {
    "refuses": lambda proxy: proxy.fault(503),
    "cuts": lambda proxy: proxy.fault(CUT),
    "hangs": lambda proxy: proxy.fault(SILENT),
    "is not there": lambda proxy: proxy.stop(),
}


def thoroughly(case: Any) -> Any:
    """Each takes more than a minute: in `make test` only the fault that is the hardest to notice."""
    return pytest.param(case, marks=pytest.mark.thorough)


@pytest.fixture
def proxy(s3: Store, tmp_path: Path) -> Iterator[S3Proxy]:
    with S3Proxy(tmp_path / "proxy", s3.url) as proxy:
        yield proxy


@pytest.fixture
def behind(fleet: MakeFleet, s3: Store, proxy: S3Proxy) -> Fleet:
    """Two workers that reach the store through the proxy, and have landed a round."""
    it = fleet(
        ROUND,
        **METADATA,
        **{
            **s3.settings,
            "storage.s3.endpoint": proxy.url,
            "target.base.path": f"s3a://{s3.make_bucket()}/orders",
            "coordinator.writestatus.timeout": "300s",
        },
    )
    it.start("w1")
    it.start("w2")
    it.wait_landed(ends(1))
    return it


def ends(rounds: int) -> dict[int, int]:
    return dict.fromkeys(range(PARTITIONS), rounds * ROUND // PARTITIONS)


def heal(proxy: S3Proxy) -> None:
    if proxy.running:
        proxy.fault(0)
        proxy.delay(0)
    else:
        proxy.start()


@pytest.mark.parametrize("what", [each if each == "hangs" else thoroughly(each) for each in FAULTS])
@pytest.mark.parametrize("seconds", [60, thoroughly(600)])
def test_a_store_that_was_away_is_told_once_and_the_next_commit_follows_its_return(
    behind: Fleet, proxy: S3Proxy, what: str, seconds: float
) -> None:
    before = committed(behind.view())
    produce(behind.kafka, behind.topic, ROUND, PARTITIONS, first=ROUND)
    behind.wait("a transaction is open", lambda view: bool(view.transactions))
    FAULTS[what](proxy)
    broken = time.monotonic()
    produce(behind.kafka, behind.topic, ROUND, PARTITIONS, first=2 * ROUND)
    while time.monotonic() - broken < seconds:
        time.sleep(1.0)
    landed = committed(behind.view())
    heal(proxy)
    back = time.monotonic()
    behind.wait("the next commit", lambda view: committed(view) > landed)
    took = time.monotonic() - back
    behind.wait_landed(ends(3))
    told = [line for name in behind.workers for line in lines(behind, name, "store.")]
    assert took <= BACK_SECONDS, f"{took:.1f} s\n{behind.logs()}"
    assert committed(behind.view()) > before
    for name in behind.workers:
        its = [line["event"] for line in lines(behind, name, "store.")]
        assert its in ([], ["store.unavailable", "store.available"], ["store.slow", "store.available"]), told
        # An abort or a change of coordinator may be told as well, but not each try.
        assert len(lines(behind, name, "", since=told[0]["timestamp"])) <= 12 + seconds / 30, behind.logs()
    assert any(line["event"] != "store.available" and line["seconds"] < 20 for line in told), behind.logs()
    assert not [line for name in behind.workers for line in lines(behind, name, "batch.divided")]
    assert not [line for name in behind.workers for line in lines(behind, name, "write.less_memory")]
    behind.assert_exactly_once(3 * ROUND)


def test_a_slow_store_is_told_once_and_lands_all(behind: Fleet, proxy: S3Proxy) -> None:
    proxy.delay(2.5)
    produce(behind.kafka, behind.topic, ROUND, PARTITIONS, first=ROUND)
    behind.wait_for_log(coordinator(behind), "store.slow")
    proxy.delay(0)
    behind.wait_landed(ends(2))
    behind.wait_for_log(coordinator(behind), "store.available")
    assert not [line for name in behind.workers for line in lines(behind, name, "batch.divided")]
    behind.assert_exactly_once(2 * ROUND)


@pytest.mark.parametrize("what", [thoroughly("refuses"), "hangs"])
def test_a_worker_ends_in_time_though_the_store_does_not_answer(behind: Fleet, proxy: S3Proxy, what: str) -> None:
    leader = coordinator(behind)
    produce(behind.kafka, behind.topic, ROUND, PARTITIONS, first=ROUND)
    behind.wait("a transaction is open", lambda view: bool(view.transactions))
    FAULTS[what](proxy)
    behind.wait_for_log(leader, "store.")
    worker = behind.workers[leader]
    began = time.monotonic()
    worker.terminate()
    assert worker.wait(120) == 0
    assert time.monotonic() - began <= STOP_SECONDS
    heal(proxy)
    behind.wait_landed(ends(2))
    behind.assert_exactly_once(2 * ROUND)


def coordinator(it: Fleet) -> str:
    view = it.wait("a coordinator", lambda view: view.coordinator is not None)
    assert view.coordinator is not None
    return view.coordinator.rpartition(":")[0]


def committed(view: KeeperView) -> int:
    return view.ledger.committed


def lines(it: Fleet, worker: str, event: str, since: object = "") -> list[dict[str, object]]:
    """Its log lines at level info and above whose event begins so."""
    found = []
    for line in it.log(worker).splitlines():
        try:
            logged = json.loads(line)
        except ValueError:
            continue
        if logged.get("level") == "debug" or str(logged.get("timestamp", "")) < str(since):
            continue
        if str(logged.get("event", "")).startswith(event):
            found.append(logged)
    return found


@pytest.mark.parametrize("seconds", [1800, *(pytest.param(each, marks=pytest.mark.thorough) for each in (-1800, -300))])
def test_a_store_whose_clock_is_off_gets_every_record_once(behind: Fleet, proxy: S3Proxy, seconds: float) -> None:
    """By half an hour requests are turned away until a client has set its clock by the answer."""
    proxy.skew(seconds)
    for rounds in (2, 3):
        produce(behind.kafka, behind.topic, ROUND, PARTITIONS, first=(rounds - 1) * ROUND)
        behind.wait_landed(ends(rounds))
    behind.workers[coordinator(behind)].kill()
    produce(behind.kafka, behind.topic, ROUND, PARTITIONS, first=3 * ROUND)
    behind.wait_landed(ends(4))
    if abs(seconds) > 900:
        # hudi-rs goes by no other clock than the host's.
        with pytest.raises(TableError, match="differ by more than 15 minutes"):
            behind.audit()
        proxy.skew(0)
    behind.assert_exactly_once(4 * ROUND)
