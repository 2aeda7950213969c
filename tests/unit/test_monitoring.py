"""Alert rules and dashboard ask for metrics that a worker serves, with labels that they have."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.request import urlopen

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from coordination.state.messages import Note
from coordination.state.model import LogView, PartitionLog, PartitionState, TopicPartition
from coordination.state.reading import TreeReader
from coordination.state.tree import Ledger, Summary
from coordination.zookeeper.table_service_lock import Service
from sink.telemetry.metrics import ProcessMetrics

MONITORING = Path(__file__).resolve().parents[2] / "docker" / "monitoring"
NAME = re.compile(r"\b(sink_\w+)(?:\{([^}]*)\})?")
GROUPING = re.compile(r"\b(?:by|on|unless on|and on) \(([^)]*)\)")
OF_PROMETHEUS = {"instance", "job", "le", "alertname"}


@pytest.fixture(scope="module")
def served() -> dict[str, set[str]]:
    """Labels by name of the samples that a worker serves over HTTP once everything has happened to it."""
    process = ProcessMetrics("w1")
    sink = process.sink("orders")
    sink.configured(60, 300)
    for event, more in (
        ("transaction.opened", {"attempt": 1}),
        ("transaction.entered", {"phase": "STARTED"}),
        ("transaction.ended", {"outcome": "COMMITTED", "records": 5, "errors": 1}),
    ):
        sink.note(Note(event, tuple({"transaction": 7, **more}.items())))
    source = TopicPartition("orders", 0)
    times = {"PLANNED": 1.0, "COMMITTED": 2.0}
    ledger = Ledger(7, 7, history=(Summary(7, 7, "COMMITTED", "1", 5, "", times),))
    states = {source: PartitionState("id", 0, 5, 0)}
    sink.keeper(replace(TreeReader().read({}), states=states, ledger=ledger))
    sink.log(LogView("c", {source: PartitionLog("id", 0, 9)}))
    sink.retention({"orders": 600.0})
    sink.group_committed("done")
    sink.watch(lambda: 0.0, {})
    sink.served(Service("cleaning", 1.0))
    sink.registered(0, 1.0)
    sink.table(5)
    sink.table_files(5)
    sink.audited(True, 5.0)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process.serve(port)
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        text = answer.read().decode()
    process.close()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {sample.name: set(sample.labels) for sample in samples}


def rule_expressions() -> list[str]:
    document = yaml.safe_load((MONITORING / "alerts.yaml").read_text())
    return [rule["expr"] for group in document["groups"] for rule in group["rules"]]


def _of_dashboard(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (text for key, text in value.items() if key in {"expr", "definition"} and isinstance(text, str))
        yield from (text for inner in value.values() for text in _of_dashboard(inner))
    elif isinstance(value, list):
        yield from (text for inner in value for text in _of_dashboard(inner))


def dashboard_expressions() -> list[str]:
    return list(_of_dashboard(json.loads((MONITORING / "dashboard.json").read_text())))


def unserved(expressions: list[str], served: dict[str, set[str]]) -> list[str]:
    wrong = []
    for expression in expressions:
        asked = NAME.findall(expression)
        labels: set[str] = set().union(*(served.get(name, set()) for name, _ in asked)) | OF_PROMETHEUS
        wrong += [name for name, _ in asked if name not in served]
        for name, matchers in asked:
            matched = set(re.findall(r"(\w+)\s*[=!]", matchers))
            wrong += [f"{name}: {label}" for label in matched - served.get(name, set()) - OF_PROMETHEUS]
        if asked and "sink:" not in expression:
            grouped = {label.strip() for group in GROUPING.findall(expression) for label in group.split(",")}
            wrong += [f"{expression}: {label}" for label in grouped - labels]
    return wrong


def test_every_metric_and_label_of_the_rules_is_served(served: dict[str, set[str]]) -> None:
    assert len(rule_expressions()) > 15
    assert unserved(rule_expressions(), served) == []


def test_every_metric_and_label_of_the_dashboard_is_served(served: dict[str, set[str]]) -> None:
    assert len(dashboard_expressions()) > 30
    assert unserved(dashboard_expressions(), served) == []


def test_a_name_or_a_label_that_nobody_serves_is_seen(served: dict[str, set[str]]) -> None:
    assert unserved(["sink_imagined > 0"], served) == ["sink_imagined"]
    assert unserved(['sink_halted{phase="x"}'], served) == ["sink_halted: phase"]
    assert unserved(["max by (sink, phase) (sink_halted)"], served) == ["max by (sink, phase) (sink_halted): phase"]


def test_the_dashboard_shows_every_metric_but_a_few(served: dict[str, set[str]]) -> None:
    shown = {name for expression in dashboard_expressions() for name, _ in NAME.findall(expression)}
    old = {"sink_errors_total", "sink_bytes_total", "sink_phase_seconds", "sink_services_total", "sink_lag"}
    old |= {"sink_services_seconds", "sink_catalog_seconds"}
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in served}
    families -= {name for name in families if name.startswith(tuple(f"{each}_" for each in old))}
    told_by_alerts = {"sink_paused", "sink_refused", "sink_retention_seconds", "sink_table_service_failed"}
    seen = {re.sub(r"_(bucket|sum|count)$", "", name) for name in shown}
    assert families - seen - old - told_by_alerts == {"sink_catalog_sync_duration_seconds"}


def test_panels_of_the_dashboard_have_ids_of_their_own_and_do_not_overlap() -> None:
    panels = json.loads((MONITORING / "dashboard.json").read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert {x for x, _ in cells} == set(range(24))


def test_the_expressions_of_the_dashboard_can_be_parsed(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed: `apt-get install prometheus` has it")
    expressions = [text for text in dashboard_expressions() if not text.startswith("label_values")]
    expressions = [text.replace("$__rate_interval", "5m").replace("$sink", ".*") for text in expressions]
    rules = [{"record": f"panel:{number}", "expr": text} for number, text in enumerate(expressions)]
    file = tmp_path / "dashboard.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    subprocess.run([promtool, "check", "rules", str(file)], check=True, timeout=60)
    subprocess.run([promtool, "check", "config", str(MONITORING / "prometheus.yaml")], check=True, timeout=60)


def test_the_documentation_has_every_alert_with_its_severity() -> None:
    page = (MONITORING.parents[1] / "docs" / "monitoring.md").read_text()
    rows = re.findall(r"^\| ((?:`Sink\w+`(?:, )?)+) \| (\w+) \|", page, re.MULTILINE)
    told = {alert: severity for names, severity in rows for alert in re.findall(r"\w+", names)}
    document = yaml.safe_load((MONITORING / "alerts.yaml").read_text())
    rules = [rule for group in document["groups"] for rule in group["rules"] if "alert" in rule]
    assert told == {rule["alert"]: rule["labels"]["severity"] for rule in rules}
