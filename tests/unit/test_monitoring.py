"""Alert rules and dashboard ask for metrics that a worker serves, with labels that they have."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from coordination.state.messages import Note
from coordination.state.model import LogView, PartitionLog, PartitionState, TopicPartition
from coordination.state.reading import TreeReader
from coordination.state.tree import Ledger, Summary
from coordination.zookeeper.table_service_lock import ServiceOutcome, TableServiceRun
from sink.telemetry.metrics import ProcessMetrics

MONITORING = Path(__file__).resolve().parents[2] / "docker" / "monitoring"
NAME = re.compile(r"\b(sink_\w+)(?:\{([^}]*)\})?")
GROUPING = re.compile(r"\b(?:by|on|unless on|and on) \(([^)]*)\)")
PROMETHEUS_LABELS = {"instance", "job", "le", "alertname"}


@pytest.fixture(scope="module")
def served_labels() -> dict[str, set[str]]:
    """Returns the labels, by sample name, that a worker serves over HTTP once everything has happened to it."""
    process = ProcessMetrics("w1")
    sink = process.sink("orders")
    sink.configured(300, 86_400, 900)
    for event, fields in (
        ("transaction.opened", {"attempt": 1}),
        ("transaction.entered", {"phase": "STARTED"}),
        ("transaction.ended", {"outcome": "COMMITTED", "records": 5, "errors": 1}),
        ("log.compared", {"partitions": 1, "without_record": 1}),
    ):
        sink.note(Note(event, tuple({"transaction": 7, **fields}.items())))
    source = TopicPartition("orders", 0)
    times = {"PLANNED": 1.0, "COMMITTED": 2.0}
    ledger = Ledger(7, 7, history=(Summary(7, 7, "COMMITTED", "1", 5, "", times),))
    states = {source: PartitionState("id", 0, 5, 0)}
    sink.keeper(replace(TreeReader().read({}), states=states, ledger=ledger))
    sink.log(LogView("c", {source: PartitionLog("id", 0, 9)}))
    sink.retention({"orders": 600.0})
    sink.group_committed("done")
    sink.watch(lambda: 0.0, {})
    sink.served(ServiceOutcome("cleaning", 1.0))
    sink.services(TableServiceRun(services=(ServiceOutcome("cleaning", 1.0, "", "no room", 5.0),)))
    sink.lock_held("complete", 1.0)
    sink.registered(0, 1.0)
    sink.table(5)
    sink.table_files(5)
    sink.audited(True, 5.0, 3)
    samples = [
        sample for family in text_string_to_metric_families(process.text().decode()) for sample in family.samples
    ]
    return {sample.name: set(sample.labels) for sample in samples}


def rule_expressions() -> list[str]:
    document = yaml.safe_load((MONITORING / "alerts.yaml").read_text())
    return [rule["expr"] for group in document["groups"] for rule in group["rules"]]


def _expressions_in(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (text for key, text in value.items() if key in {"expr", "definition"} and isinstance(text, str))
        yield from (text for inner in value.values() for text in _expressions_in(inner))
    elif isinstance(value, list):
        yield from (text for inner in value for text in _expressions_in(inner))


def dashboard_expressions() -> list[str]:
    return list(_expressions_in(json.loads((MONITORING / "dashboard.json").read_text())))


def unserved(expressions: list[str], served_labels: dict[str, set[str]]) -> list[str]:
    problems = []
    for expression in expressions:
        metrics = NAME.findall(expression)
        known_labels: set[str] = (
            set().union(*(served_labels.get(name, set()) for name, _ in metrics)) | PROMETHEUS_LABELS
        )
        problems += [name for name, _ in metrics if name not in served_labels]
        for name, matchers in metrics:
            matched = set(re.findall(r"(\w+)\s*[=!]", matchers))
            problems += [f"{name}: {label}" for label in matched - served_labels.get(name, set()) - PROMETHEUS_LABELS]
        if metrics and "sink:" not in expression:
            grouped = {label.strip() for group in GROUPING.findall(expression) for label in group.split(",")}
            problems += [f"{expression}: {label}" for label in grouped - known_labels]
    return problems


def test_every_metric_and_label_of_the_rules_is_served(served_labels: dict[str, set[str]]) -> None:
    assert len(rule_expressions()) > 15
    assert unserved(rule_expressions(), served_labels) == []


def test_every_metric_and_label_of_the_dashboard_is_served(served_labels: dict[str, set[str]]) -> None:
    assert len(dashboard_expressions()) > 30
    assert unserved(dashboard_expressions(), served_labels) == []


def test_a_name_or_a_label_that_nobody_serves_is_seen(served_labels: dict[str, set[str]]) -> None:
    assert unserved(["sink_imagined > 0"], served_labels) == ["sink_imagined"]
    assert unserved(['sink_halted{phase="x"}'], served_labels) == ["sink_halted: phase"]
    assert unserved(["max by (sink, phase) (sink_halted)"], served_labels) == [
        "max by (sink, phase) (sink_halted): phase"
    ]


def test_the_dashboard_shows_every_metric_but_a_few(served_labels: dict[str, set[str]]) -> None:
    shown = {name for expression in dashboard_expressions() for name, _ in NAME.findall(expression)}
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in served_labels}
    only_in_alerts = {
        "sink_paused",
        "sink_refused",
        "sink_retention_seconds",
        "sink_open_transaction_allowance_seconds",
    }
    shown_families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in shown}
    assert families - shown_families == only_in_alerts


def test_panels_of_the_dashboard_have_ids_of_their_own_and_do_not_overlap() -> None:
    panels = json.loads((MONITORING / "dashboard.json").read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for area in (panel["gridPos"] for panel in panels)
        for x in range(area["x"], area["x"] + area["w"])
        for y in range(area["y"], area["y"] + area["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert {x for x, _ in cells} == set(range(24))


def test_the_expressions_of_the_dashboard_can_be_parsed(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("no promtool here: apt-get install prometheus")
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
    documented = {alert: severity for names, severity in rows for alert in re.findall(r"\w+", names)}
    document = yaml.safe_load((MONITORING / "alerts.yaml").read_text())
    rules = [rule for group in document["groups"] for rule in group["rules"] if "alert" in rule]
    assert documented == {rule["alert"]: rule["labels"]["severity"] for rule in rules}
