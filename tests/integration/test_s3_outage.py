"""A worker reports once a store that refuses, cuts, hangs or is slow, and its return; no record is lost or doubled."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from coordination.state.tree import KeeperView
from sink.audit.failures import CannotAudit
from tests.fleet import Fleet, produce
from tests.integration.conftest import METADATA, PARTITIONS, MakeFleet
from tests.storage.s3_proxy import CUT, SILENT, S3Proxy
from tests.storage.s3_server import Store
from tests.waiting import eventually

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


THOROUGH = pytest.mark.thorough
LONG = pytest.param("hangs", 600, marks=THOROUGH)
"""The fault that is the hardest to notice."""


@pytest.fixture
def proxy(s3: Store, tmp_path: Path) -> Iterator[S3Proxy]:
    with S3Proxy(tmp_path / "proxy", s3.url) as proxy:
        yield proxy


@pytest.fixture
def proxied_fleet(make_fleet: MakeFleet, s3: Store, proxy: S3Proxy) -> Fleet:
    """Two workers that reach the store through the proxy, after they have landed a round."""
    two_workers = make_fleet(
        ROUND,
        **METADATA,
        **{
            **s3.settings,
            "storage.s3.endpoint": proxy.url,
            "target.base.path": f"s3a://{s3.make_bucket()}/orders",
            "coordinator.writestatus.timeout": "300s",
        },
    )
    two_workers.start("w1")
    two_workers.start("w2")
    two_workers.wait_landed(ends(1))
    return two_workers


def ends(rounds: int) -> dict[int, int]:
    return dict.fromkeys(range(PARTITIONS), rounds * ROUND // PARTITIONS)


def heal(proxy: S3Proxy) -> None:
    if proxy.running:
        proxy.fault(0)
        proxy.delay(0)
    else:
        proxy.start()


@pytest.mark.parametrize(
    ("fault", "seconds"),
    [("hangs", 60), *(pytest.param(name, 60, marks=THOROUGH) for name in FAULTS if name != "hangs"), LONG],
)
def test_a_store_that_was_away_is_told_once_and_the_next_commit_follows_its_return(
    proxied_fleet: Fleet, proxy: S3Proxy, fault: str, seconds: float
) -> None:
    committed_before = committed(proxied_fleet.view())
    produce(proxied_fleet.kafka, proxied_fleet.topic, ROUND, PARTITIONS, first=ROUND)
    proxied_fleet.wait("a transaction is open", lambda view: bool(view.transactions))
    FAULTS[fault](proxy)
    broken_at = time.monotonic()
    produce(proxied_fleet.kafka, proxied_fleet.topic, ROUND, PARTITIONS, first=2 * ROUND)
    while time.monotonic() - broken_at < seconds:
        time.sleep(1.0)
    committed_meanwhile = committed(proxied_fleet.view())
    heal(proxy)
    healed_at = time.monotonic()
    proxied_fleet.wait("the next commit", lambda view: committed(view) > committed_meanwhile)
    commit_seconds = time.monotonic() - healed_at
    proxied_fleet.wait_landed(ends(3))

    def end_is_told() -> bool:
        told = [log_lines(proxied_fleet, name, "store.") for name in proxied_fleet.workers]
        return all(lines[-1]["event"] == "store.available" for lines in told if lines)

    eventually("the workers say that it is back", end_is_told, 60, proxied_fleet.logs)
    reports = [line for name in proxied_fleet.workers for line in log_lines(proxied_fleet, name, "store.")]
    assert commit_seconds <= BACK_SECONDS, f"{commit_seconds:.1f} s\n{proxied_fleet.logs()}"
    assert committed(proxied_fleet.view()) > committed_before
    assert any(line["event"] != "store.available" and line["seconds"] < 20 for line in reports), proxied_fleet.logs()
    for name in proxied_fleet.workers:
        events = [line["event"] for line in log_lines(proxied_fleet, name, "store.")]
        assert events in ([], ["store.unavailable", "store.available"], ["store.slow", "store.available"]), reports
        # The worker may also report an abort or a change of coordinator, but not every retry.
        assert len(log_lines(proxied_fleet, name, "", since=reports[0]["timestamp"])) <= 12 + seconds / 30, (
            proxied_fleet.logs()
        )
    assert not [line for name in proxied_fleet.workers for line in log_lines(proxied_fleet, name, "batch.divided")]
    assert not [line for name in proxied_fleet.workers for line in log_lines(proxied_fleet, name, "write.less_memory")]
    proxied_fleet.assert_exactly_once(3 * ROUND)


def test_a_slow_store_is_told_once_and_lands_all(proxied_fleet: Fleet, proxy: S3Proxy) -> None:
    proxy.delay(2.5)
    produce(proxied_fleet.kafka, proxied_fleet.topic, ROUND, PARTITIONS, first=ROUND)
    proxied_fleet.wait_for_log(coordinator(proxied_fleet), "store.slow")
    proxy.delay(0)
    proxied_fleet.wait_landed(ends(2))
    proxied_fleet.wait_for_log(coordinator(proxied_fleet), "store.available")
    assert not [line for name in proxied_fleet.workers for line in log_lines(proxied_fleet, name, "batch.divided")]
    proxied_fleet.assert_exactly_once(2 * ROUND)


@pytest.mark.parametrize("fault", [pytest.param("refuses", marks=THOROUGH), "hangs"])
def test_a_worker_ends_in_time_though_the_store_does_not_answer(
    proxied_fleet: Fleet, proxy: S3Proxy, fault: str
) -> None:
    leader = coordinator(proxied_fleet)
    produce(proxied_fleet.kafka, proxied_fleet.topic, ROUND, PARTITIONS, first=ROUND)
    proxied_fleet.wait("a transaction is open", lambda view: bool(view.transactions))
    FAULTS[fault](proxy)
    proxied_fleet.wait_for_log(leader, "store.")
    worker = proxied_fleet.workers[leader]
    terminated_at = time.monotonic()
    worker.terminate()
    assert worker.wait(120) == 0
    assert time.monotonic() - terminated_at <= STOP_SECONDS
    heal(proxy)
    proxied_fleet.wait_landed(ends(2))
    proxied_fleet.assert_exactly_once(2 * ROUND)


def coordinator(fleet: Fleet) -> str:
    view = fleet.wait("a coordinator", lambda view: view.coordinator is not None)
    assert view.coordinator is not None
    return view.coordinator.rpartition(":")[0]


def committed(view: KeeperView) -> int:
    return view.ledger.committed


def log_lines(fleet: Fleet, worker: str, event: str, since: object = "") -> list[dict[str, object]]:
    """Returns a worker's log lines at level info and above whose event begins with `event`."""
    lines = []
    for line in fleet.log(worker).splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if entry.get("level") == "debug" or str(entry.get("timestamp", "")) < str(since):
            continue
        if str(entry.get("event", "")).startswith(event):
            lines.append(entry)
    return lines


@pytest.mark.parametrize("seconds", [1800, *(pytest.param(skew, marks=pytest.mark.thorough) for skew in (-1800, -300))])
def test_a_store_whose_clock_is_off_gets_every_record_once(
    proxied_fleet: Fleet, proxy: S3Proxy, seconds: float
) -> None:
    """At a skew of half an hour, the store refuses requests until a client has set its clock by the response."""
    proxy.skew(seconds)
    for rounds in (2, 3):
        produce(proxied_fleet.kafka, proxied_fleet.topic, ROUND, PARTITIONS, first=(rounds - 1) * ROUND)
        proxied_fleet.wait_landed(ends(rounds))
    proxied_fleet.workers[coordinator(proxied_fleet)].kill()
    produce(proxied_fleet.kafka, proxied_fleet.topic, ROUND, PARTITIONS, first=3 * ROUND)
    proxied_fleet.wait_landed(ends(4))
    if abs(seconds) > 900:
        # hudi-rs uses the host's clock alone.
        with pytest.raises(CannotAudit, match="differ by more than 15 minutes"):
            proxied_fleet.audit()
        proxy.skew(0)
    proxied_fleet.assert_exactly_once(4 * ROUND)
