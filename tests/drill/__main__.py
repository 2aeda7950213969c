"""A drill: twelve faults, one after another, and how soon each shows in `/health`, on the page, as a metric and as an
alert; then a quiet hour without a fault, in which nothing may be shown; then an audit of the contents of every table.

`python -m tests.drill` needs Debian's `prometheus` and `chromium`. It prints a table for docs/monitoring.md. Prometheus
scrapes and evaluates every 5 s. `--faults NAME,NAME` and `--quiet SECONDS` do less. The exit status is 1 if a fault did
not show in time, or something showed in the quiet hour.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from coordination.state.failures import HaltKind
from sink.operations.remedies import DO, halt_remedy
from tests.chromium import MISSING as NO_CHROMIUM
from tests.chromium import Chromium, find_chromium
from tests.drill.faults import FAULTS, Fault
from tests.drill.lab import WORKERS, Lab
from tests.prometheus import MISSING as NO_PROMETHEUS
from tests.prometheus import Prometheus
from tests.waiting import eventually

LOOK_SECONDS = 0.5
SHOWN_SECONDS = 15.0
"""Each fault has to show within this, counted from when it can be detected."""
GIVE_UP_SECONDS = 150.0
CALM_SECONDS = 900.0
SCRAPE_SECONDS = 5
LINGERING = frozenset({"SinkBadRecords", "SinkAborts"})
"""Alerts over the last ten and fifteen minutes: each stays for so long after its fault."""
SURFACES = ("/health", "page", "metric", "alert pending", "alert firing")


@dataclass
class Showing:
    """Seconds from a fault's beginning until it showed, by surface."""

    fault: Fault
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def late(self) -> list[str]:
        allowed = dict.fromkeys(SURFACES, self.fault.detectable_after + SHOWN_SECONDS)
        allowed["alert firing"] += self.fault.alert_waits
        return [surface for surface in SURFACES if self.seconds.get(surface, GIVE_UP_SECONDS) > allowed[surface]]

    def row(self) -> str:
        needs = f"{self.fault.detectable_after:.0f} s: {self.fault.why}" if self.fault.detectable_after else "nothing"
        cells = [f"{self.seconds[surface]:.1f}" if surface in self.seconds else "not seen" for surface in SURFACES]
        waits = f" (its rule waits {self.fault.alert_waits:.0f})" if self.fault.alert_waits else ""
        return f"| {self.fault.name} | {needs} | {' | '.join(cells)}{waits} |"


class Watch:
    """Reads all that an operator looks at: the addresses, the page, and Prometheus."""

    def __init__(self, lab: Lab, browser: Chromium, prometheus: Prometheus) -> None:
        self._lab = lab
        self._browser = browser
        self._prometheus = prometheus

    def open(self, worker: str) -> None:
        self._browser.open(f"http://127.0.0.1:{self._lab.ports[worker]}/")

    def health(self, fault: Fault) -> bool:
        """Returns whether a worker reports the fault. Opens that worker's page."""
        for worker in (fault.worker,) if fault.worker else WORKERS:
            if fault.kind in self.kinds(worker):
                self.open(worker)
                return True
        return False

    def kinds(self, worker: str) -> set[str]:
        """Returns the kinds of all findings in the worker's `/health`."""
        try:
            report = self._lab.client(worker).ask("/health").json
        except (OSError, ValueError):
            return set()
        sinks = report["sinks"].values()
        findings = [*report["reasons"], *(note for sink in sinks for note in (*sink["reasons"], *sink["notes"]))]
        return {finding["kind"] for finding in findings}

    def page(self, fault: Fault) -> bool:
        """Returns whether the page says what to do, or that ZooKeeper is away."""
        text = " ".join(self._browser.text().split())
        if fault.kind == "zookeeper" and "ZooKeeper does not answer this worker" in text:
            return True
        remedy = halt_remedy(HaltKind.OFFSETS_DELETED).do if fault.kind == "halted" else DO[fault.kind][0]
        return remedy.replace("`", "")[:60] in text

    def metric(self, fault: Fault) -> bool:
        by_worker = [self._shows_metric(worker, fault) for worker in WORKERS]
        return all(by_worker) if fault.metric.on_every_worker else any(by_worker)

    def _shows_metric(self, worker: str, fault: Fault) -> bool:
        try:
            text = self._lab.client(worker).ask("/metrics").body.decode()
        except OSError:
            return False
        metric = fault.metric
        values = [
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == metric.name and metric.labels.items() <= sample.labels.items()
        ]
        return bool(values) and (all if metric.on_every_worker else any)(map(metric.matches, values))

    def alerts(self, *states: str) -> set[str]:
        return self._prometheus.alerts(*states)

    def shown(self) -> set[str]:
        """Returns all findings and alerts that are shown now, but for the lingering alerts."""
        alerts = self.alerts("firing", "pending") - LINGERING
        return alerts.union(*(self.kinds(worker) for worker in WORKERS))


def drill_fault(fault: Fault, lab: Lab, watch: Watch) -> Showing:
    """Begins the fault, waits until it shows everywhere, and ends it."""
    showing = Showing(fault)
    fault.begin(lab)
    began = time.monotonic()
    looks = {
        "/health": lambda: watch.health(fault),
        "page": lambda: watch.page(fault),
        "metric": lambda: watch.metric(fault),
        "alert pending": lambda: fault.alert in watch.alerts("pending", "firing"),
        "alert firing": lambda: fault.alert in watch.alerts("firing"),
    }
    while len(showing.seconds) < len(looks) and time.monotonic() - began < GIVE_UP_SECONDS:
        for surface, is_shown in looks.items():
            if surface not in showing.seconds and is_shown():
                showing.seconds[surface] = time.monotonic() - began
        time.sleep(LOOK_SECONDS)
    fault.end(lab)
    return showing


def surprises_while_quiet(watch: Watch, seconds: float) -> Iterator[str]:
    """Yields each finding and alert that was shown within these seconds, and when."""
    began = time.monotonic()
    while (elapsed := time.monotonic() - began) < seconds:
        if shown := watch.shown() | watch.alerts("firing", "pending"):
            yield f"{elapsed:.0f} s: {', '.join(sorted(shown))}"
        time.sleep(SHOWN_SECONDS / 5)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", default="", help="names, or their beginnings, separated by commas")
    parser.add_argument("--quiet", type=float, default=3600.0, help="seconds in which nothing may be shown")
    options = parser.parse_args(arguments)
    wanted = [name for name in options.faults.split(",") if name]
    faults = [fault for fault in FAULTS if not wanted or any(fault.name.startswith(name) for name in wanted)]
    program = shutil.which("prometheus")
    if program is None or find_chromium() is None:
        sys.exit(NO_CHROMIUM if program else NO_PROMETHEUS)
    showings: list[Showing] = []
    with (
        tempfile.TemporaryDirectory(prefix="sink-drill-") as directory,
        Lab(Path(directory)) as lab,
        Chromium() as browser,
    ):
        prometheus = Prometheus(
            program, Path(directory, "prometheus"), tuple(lab.ports.values()), SCRAPE_SECONDS, SCRAPE_SECONDS
        )
        prometheus.child.start()
        try:
            eventually("Prometheus answers", prometheus.answers, 60, prometheus.child.tail)
            watch = Watch(lab, browser, prometheus)
            print(f"| fault | what it needs to be known | {' | '.join(SURFACES)} |\n|---|---|{'---:|' * len(SURFACES)}")
            for fault in faults:
                eventually("nothing is shown", lambda: not watch.shown(), CALM_SECONDS, lambda: str(watch.shown()))
                showings.append(drill_fault(fault, lab, watch))
                print(showings[-1].row(), flush=True)
            eventually("nothing is shown", lambda: not watch.shown(), CALM_SECONDS, lambda: str(watch.shown()))
            for alert in LINGERING:
                eventually(f"{alert} is over", lambda a=alert: a not in watch.alerts("firing"), 2 * CALM_SECONDS)  # type: ignore[misc]
            surprises = list(surprises_while_quiet(watch, options.quiet))
            lab.audit()
        finally:
            prometheus.child.stop()
    print(f"\n{options.quiet:.0f} quiet seconds: {'; '.join(surprises) or 'nothing was shown'}")
    print(f"the contents of {len(lab.fleet.sinks)} tables held")
    late = [f"{showing.fault.name} ({', '.join(showing.late)})" for showing in showings if showing.late]
    print(f"too late: {'; '.join(late) or 'none'}")
    return 1 if late or surprises else 0


if __name__ == "__main__":
    raise SystemExit(main())
