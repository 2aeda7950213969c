"""A worker's page in a real Chromium shows a fleet to an operator: by eye, by phone and by keyboard."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordination.errors import Unavailable
from coordination.zookeeper.table_service_lock import ServiceOutcome
from sink.devtools.local.servers import free_ports
from sink.runtime.process.http_settings import http_specification
from tests.chromium import MISSING, Chromium, find_chromium
from tests.http_fleet import SyntheticFleet

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(300),
    pytest.mark.skipif(find_chromium() is None, reason=MISSING),
]
PICTURES = os.environ.get("TEST_PICTURES", "")
"""The directory for screenshots of the tests; empty for none."""
HOSTILE_TEXT = '<img src=x onerror="document.title=1"><script>document.title=2</script>`'
_roots = itertools.count()


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with Chromium() as chromium:
        chromium.screen(1200, 1000)
        yield chromium


@pytest.fixture
def a_fleet(tmp_path: Path, zookeeper) -> Iterator[SyntheticFleet]:
    root = f"/page-{os.getpid()}-{next(_roots)}"
    [port] = free_ports(1)
    with SyntheticFleet(tmp_path, zookeeper.address, port, zookeeper__root=root) as fleet:
        yield fleet


@pytest.fixture(autouse=True)
def no_errors(browser: Chromium) -> Iterator[None]:
    browser.screen(1200, 1000)
    # The previous test's page still asks its server, which has ended.
    browser.call("Page.navigate", url="about:blank")
    browser.until("location.href === 'about:blank'")
    browser.errors.clear()
    browser.requests.clear()
    yield
    assert browser.errors == []


def save_picture(browser: Chromium, name: str) -> None:
    if PICTURES:
        browser.picture(Path(PICTURES) / f"{name}.png")


def test_the_fleet_is_shown_with_state_lag_and_workers(browser: Chromium, a_fleet: SyntheticFleet) -> None:
    orders = a_fleet.add("orders", 4)
    orders.produce(100)
    orders.commit()
    orders.produce(25)
    browser.open(a_fleet.http.url)
    browser.until("document.querySelector('#sinks tbody tr')")
    row = browser.text("#sinks tbody tr")
    assert row.split()[:3] == ["orders", "ok", "100"]
    assert "worker-2" in row
    assert "1 sink, all healthy; 2 workers" in browser.text("header")
    assert browser.text("#alerts") == ""
    assert [line.split()[0] for line in browser.text("#workers tbody").splitlines()] == ["worker-1", "worker-2"]


def test_a_halt_is_on_top_with_its_remedy_and_goes_when_it_is_over(browser: Chromium, a_fleet: SyntheticFleet) -> None:
    orders = a_fleet.add("orders", 2)
    a_fleet.add("clicks", 2)
    browser.open(a_fleet.http.url)
    browser.until("document.querySelectorAll('#sinks tbody tr').length === 2")
    orders.halt("orders-1 offset 7: no JSON", 1, 7)
    browser.until("document.querySelector('#alerts').innerText.includes('orders-1 offset 7: no JSON')")
    alerts = browser.text("#alerts")
    assert "errors.tolerance=all" in alerts
    assert "docs/runbook.md#a-bad-record" in alerts
    assert browser.text("#sinks tbody tr").split()[:2] == ["orders", "halted"]
    assert browser.value("document.title") == "(1) sink"
    a_fleet.client.delete(f"{orders.settings.root_znode}/halt")
    browser.until("document.querySelector('#alerts').hidden")


def test_a_sink_that_the_configuration_cannot_make_is_on_top_and_has_its_line(
    browser: Chromium, a_fleet: SyntheticFleet
) -> None:
    a_fleet.add("orders", 2)
    a_fleet.facts.misconfigured = {"people": "people.yaml, line 3: flush.size ('many') is not a number"}
    browser.open(a_fleet.http.url)
    browser.until("document.querySelectorAll('#sinks tbody tr').length === 2")
    rows = browser.text("#sinks tbody").splitlines()
    assert any(row.startswith("people") for row in rows)
    assert "cannot be used" in browser.text("#sinks tbody")
    alerts = browser.text("#alerts")
    assert "people.yaml, line 3: flush.size ('many') is not a number" in alerts
    assert "systemctl reload" in alerts
    save_picture(browser, "misconfigured")
    browser.open(f"{a_fleet.http.url}#people")
    browser.until("document.querySelector('#alerts').innerText.includes('people.yaml')")
    a_fleet.add("people", 2)
    a_fleet.facts.misconfigured = {}
    browser.until("document.querySelector('#alerts').hidden")


def test_what_needs_nobody_yet_is_told_for_all_sinks_at_once(browser: Chromium, a_fleet: SyntheticFleet) -> None:
    for name in ("clicks", "orders"):
        a_fleet.add(name, 2)
    a_fleet.log.error = Unavailable("Kafka at k:9092 gave no answer")
    browser.open(a_fleet.http.url)
    browser.until("document.querySelector('#fleet-notes .what')")
    assert browser.value("document.querySelectorAll('#fleet-notes .note').length") == 1
    notes = browser.text("#fleet-notes")
    assert "clicks: Kafka at k:9092 gave no answer" in notes
    assert "orders: Kafka at k:9092 gave no answer" in notes
    assert "Bring Kafka back" in notes
    assert browser.text("#alerts") == ""
    a_fleet.log.error = None
    browser.until("document.querySelector('#fleet-notes').hidden")


def test_a_sink_shows_its_open_transaction_its_partitions_and_why_the_last_ones_were_aborted(
    browser: Chromium, a_fleet: SyntheticFleet
) -> None:
    orders = a_fleet.add("orders", 3)
    orders.produce(10)
    orders.commit(bad=2)
    orders.commit(reason="worker-1 did not report within 60 s")
    orders.produce(5)
    orders.open(["worker-1:1", "worker-2:2"])
    orders.services(
        ServiceOutcome("clean", 1.0, "20260101000000000"), ServiceOutcome("cluster", 2.0, "", "no space left")
    )
    browser.open(f"{a_fleet.http.url}#orders")
    browser.until("document.querySelectorAll('#history tbody tr').length === 2")
    sink_text = browser.text("#sink")
    assert "worker-1 did not report within 60 s" in sink_text
    assert "in STARTED for" in sink_text
    assert "0 of 2 participants have reported" in sink_text
    assert "no space left" in sink_text
    phases = browser.value("document.querySelector('#open .phases').getAttribute('aria-label')")
    assert [phase.split()[0] for phase in phases.split(", ")] == ["begin", "write"]
    assert browser.value("document.querySelectorAll('#partitions .row').length") == 3
    assert browser.text("#partitions .row").split()[:2] == ["orders-0", "5"]


def test_what_records_bring_along_is_text_and_nothing_else(browser: Chromium, a_fleet: SyntheticFleet) -> None:
    orders = a_fleet.add("orders", 1)
    orders.commit(reason=HOSTILE_TEXT)
    orders.halt(HOSTILE_TEXT, 0, 1)
    browser.open(a_fleet.http.url)
    browser.until("document.querySelector('#alerts .what')")
    browser.value("location.hash = '#orders'")
    browser.until("document.querySelector('#history tbody tr')")
    assert HOSTILE_TEXT in browser.text("#history")
    assert HOSTILE_TEXT in browser.text("#alerts")
    browser.value("location.hash = '#%3Cimg%20src=x%3E'")
    browser.until("document.querySelector('#notes .what')")
    assert "hosts no sink <img src=x>" in browser.text("#notes")
    assert browser.value("document.querySelectorAll('img, main script').length") == 0
    assert browser.value("document.title") == "(1) sink"


def test_nothing_is_loaded_from_elsewhere(browser: Chromium, a_fleet: SyntheticFleet) -> None:
    a_fleet.add("orders", 1)
    browser.open(a_fleet.http.url)
    browser.until("document.documentElement.dataset.shown > 1")
    loaded_urls = [url for url in browser.requests if not url.startswith("data:")]
    assert all(url.startswith(a_fleet.http.url) for url in loaded_urls)
    assert {url.removeprefix(a_fleet.http.url) for url in loaded_urls} == {"", "overview"}


def test_the_page_is_used_by_keyboard(browser: Chromium, a_fleet: SyntheticFleet) -> None:
    for name in ("clicks", "orders", "stock"):
        a_fleet.add(name, 2)
    browser.open(a_fleet.http.url)
    browser.until("document.querySelectorAll('#sinks tbody tr').length === 3")
    browser.press("/", "/")
    browser.type("ord")
    browser.until("document.querySelectorAll('#sinks tbody tr').length === 1")
    browser.press("Escape")
    browser.press("j", "j")
    assert browser.value("document.activeElement.textContent") == "orders"
    browser.press("Enter", "\r")
    browser.until("location.hash === '#orders' && !document.querySelector('#sink').hidden")
    browser.press("Escape")
    browser.until("!document.querySelector('#fleet').hidden")


def test_on_a_phone_nothing_is_wider_than_the_screen(browser: Chromium, a_fleet: SyntheticFleet) -> None:
    orders = a_fleet.add("orders", 30)
    orders.produce(1_000_000)
    orders.commit(reason="participant worker-2 did not report within 60 s")
    for dark in (False, True):
        browser.screen(390, 844, dark=dark, phone=True)
        for page in ("", "#orders"):
            browser.call("Page.navigate", url="about:blank")
            browser.open(a_fleet.http.url + page)
            browser.until("document.querySelector('#sinks tbody tr, #history tbody tr')")
            assert browser.value("document.documentElement.scrollWidth") <= 390
    colors = browser.value("getComputedStyle(document.body).backgroundColor")
    assert colors == "rgb(20, 23, 28)"


def test_a_worker_that_is_gone_is_told_and_so_is_its_return(browser: Chromium, a_fleet: SyntheticFleet) -> None:
    a_fleet.add("orders", 1)
    browser.open(a_fleet.http.url)
    browser.until("document.querySelector('#sinks tbody tr')")
    a_fleet.http.close()
    browser.until("!document.querySelector('#offline').hidden")
    assert "does not answer" in browser.text("#offline")
    browser.errors.clear()  # Chromium reports the failed requests as errors
    a_fleet.http = type(a_fleet.http)(http_specification(a_fleet.settings), a_fleet.facts)
    a_fleet.http.start()
    browser.until("document.querySelector('#offline').hidden")
    browser.errors.clear()


def test_a_thousand_partitions_and_a_hundred_sinks_are_fluent(browser: Chromium, a_fleet: SyntheticFleet) -> None:
    wide_sink = a_fleet.add("a-wide-one", 1000)
    wide_sink.produce(10)
    for number in range(99):
        a_fleet.add(f"sink-{number:02d}", 1)
    browser.open(a_fleet.http.url)
    browser.until("document.querySelectorAll('#sinks tbody tr').length === 100")
    browser.value("location.hash = '#a-wide-one'")
    browser.until("document.querySelectorAll('#partitions .row').length > 10")
    # The page draws only the rows in sight.
    assert browser.value("document.querySelectorAll('#partitions .row').length") < 60
    browser.value("document.querySelector('#partitions').scrollTop = 28 * 990")
    browser.until("document.querySelector('#partitions').innerText.includes('a-wide-one-999')")
    renders = browser.value("Number(document.documentElement.dataset.shown)")
    browser.until(f"document.documentElement.dataset.shown > {renders + 1}")
    assert float(browser.value("document.documentElement.dataset.shownMs")) < 100
