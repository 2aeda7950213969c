"""Each fault raises its alerts and no other, and a quiet hour none: Prometheus' own promtool evaluates the rules."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "docker" / "monitoring" / "alerts.yaml"
STEP = 15
SAMPLES = 480
FAULT = 80
"""The sample at which a fault begins, after twenty minutes: rules compare with up to fifteen minutes of quiet."""

A, B = 'sink="orders",instance="a:9400",job="sink"', 'sink="orders",instance="b:9400",job="sink"'
P0 = f'{A},topic="orders",partition="0"'
WAITS = ("kafka", "registry", "storage", "topic", "zookeeper")
WEEK = 604_800


def steady(value: float) -> str:
    return f"{value:g}x{SAMPLES}"


def changing(before: float, after: float) -> str:
    return f"{before:g}x{FAULT - 1} {after:g}x{SAMPLES - FAULT}"


def rising(start: float, step: float) -> str:
    return f"{start:g}{step:+g}x{SAMPLES}"


def ended(series: Mapping[str, str]) -> dict[str, str]:
    """Returns these series until the fault; after it no worker serves them."""
    served = {name: values for name, values in series.items() if values != "stale"}
    return {name: f"{values.split('x')[0]}x{FAULT - 1} stale" for name, values in served.items()}


def turning(start: float, step: float, then_step: float, jump: float = 0) -> str:
    value_at_fault = start + step * FAULT + jump
    return f"{start:g}{step:+g}x{FAULT - 1} {value_at_fault:g}{then_step:+g}x{SAMPLES - FAULT}"


WORKER_SERIES = {
    "sink_build_info": steady(1),
    "sink_worker_time_seconds": rising(0, STEP),
    "sink_jvm_silent_seconds": steady(0.7),
    "sink_refused": steady(0),
    "sink_halted": steady(0),
    "sink_paused": steady(0),
    "sink_commit_allowance_seconds": steady(300),
    "sink_table_service_allowance_seconds": steady(86_400),
    "sink_open_transaction_allowance_seconds": steady(900),
    "sink_bad_records_total": steady(0),
}
COORDINATOR_SERIES = {
    f"sink_workers{{{A}}}": steady(2),
    f"sink_freshness_seconds{{{A}}}": steady(20),
    f"sink_last_commit_timestamp_seconds{{{A}}}": rising(-10, STEP),
    f"sink_retention_left_seconds{{{A}}}": steady(WEEK - 20),
    f"sink_retention_seconds{{{A}}}": steady(WEEK),
    f"sink_partition_committed_offset{{{P0}}}": rising(1_000_000, 150),
    f"sink_partition_log_start_offset{{{P0}}}": rising(100_000, 150),
    f"sink_partition_log_end_offset{{{P0}}}": rising(1_000_100, 150),
    f"sink_partition_lag_offsets{{{P0}}}": steady(100),
    f"sink_partition_held_back_offsets{{{P0}}}": steady(0),
    f"sink_open_transaction_seconds{{{A}}}": steady(0),
}
QUIET: dict[str, str] = {
    **{f"{name}{{{worker}}}": values for name, values in WORKER_SERIES.items() for worker in (A, B)},
    **{f'sink_waiting{{{worker},for="{dependency}"}}': steady(0) for dependency in WAITS for worker in (A, B)},
    'up{instance="a:9400",job="sink"}': steady(1),
    'up{instance="b:9400",job="sink"}': steady(1),
    f"sink_coordinator{{{A}}}": steady(1),
    f"sink_coordinator{{{B}}}": steady(0),
    f'sink_transactions_ended_total{{{A},outcome="COMMITTED"}}': rising(0, 1),
    f'sink_transactions_ended_total{{{A},outcome="ABORTED"}}': steady(0),
    **COORDINATOR_SERIES,
    f'sink_table_service_failed{{{B},service="cleaning"}}': steady(0),
    f'sink_table_service_due_timestamp_seconds{{{A},service="cleaning"}}': "stale",
    f"sink_catalog_failures{{{B}}}": steady(0),
    f"sink_audit_timestamp_seconds{{{B}}}": steady(-86_400),
    f"sink_audit_held{{{B}}}": steady(1),
}
"""Two workers, one of which leads and lands 10 offsets a second, 100 behind."""


@dataclass(frozen=True)
class Case:
    alerts: frozenset[str]
    after: int
    """Seconds from the fault until the alerts fire."""
    series: Mapping[str, str] = field(default_factory=dict)


def fires(*alerts: str, after: int, series: Mapping[str, str]) -> Case:
    return Case(frozenset(alerts), after, series)


def waiting(dependency: str) -> dict[str, str]:
    return {series_name(A, "sink_waiting", **{"for": dependency}): changing(0, 1)}


def series_name(worker: str, name: str, **labels: str) -> str:
    return f"{name}{{{','.join([worker, *(f'{key}=' + chr(34) + value + chr(34) for key, value in labels.items())])}}}"


LAG, FRESHNESS = series_name(P0, "sink_partition_lag_offsets"), series_name(A, "sink_freshness_seconds")
LAST_COMMIT, LEFT = series_name(A, "sink_last_commit_timestamp_seconds"), series_name(A, "sink_retention_left_seconds")
B_ENDS = ended({name: values for name, values in QUIET.items() if B in name})
STANDSTILL = {FRESHNESS: turning(20, 0, STEP), LAST_COMMIT: turning(-10, STEP, 0)}

CASES: dict[str, Case] = {
    "an open Kafka transaction": fires(
        "SinkOpenTransaction",
        after=930,
        series={
            series_name(A, "sink_open_transaction_seconds"): turning(0, 0, STEP),
            LAG: turning(100, 0, 150),
            series_name(P0, "sink_partition_held_back_offsets"): turning(0, 0, 150),
        },
    ),
    "a quiet hour": fires(after=3000, series={}),
    "ZooKeeper away": fires("SinkWaiting", after=30, series=waiting("zookeeper")),
    "Kafka away": fires("SinkWaiting", after=30, series=waiting("kafka")),
    "storage away": fires("SinkWaiting", after=30, series=waiting("storage")),
    "registry away": fires("SinkWaiting", after=30, series=waiting("registry")),
    "a wait of one look": fires(
        after=30, series={series_name(A, "sink_waiting", **{"for": "kafka"}): f"0x{FAULT - 1} 1 0x{SAMPLES - FAULT}"}
    ),
    "a halt": fires("SinkHalted", after=15, series={series_name(w, "sink_halted"): changing(0, 1) for w in (A, B)}),
    "a sink that cannot be used": fires(
        "SinkRefused", after=75, series={series_name(B, "sink_refused"): changing(0, 1)}
    ),
    "a bad record": fires(
        "SinkBadRecords", after=15, series={series_name(A, "sink_bad_records_total"): changing(0, 1)}
    ),
    "a stuck JVM": fires(
        "SinkJvmSilent", after=15, series={series_name(B, "sink_jvm_silent_seconds"): turning(0.7, 0, STEP, 6)}
    ),
    "a worker gone": fires(
        "SinkWorkerGone",
        "SinkWorkerSilent",
        after=60,
        series={
            **B_ENDS,
            'up{instance="b:9400",job="sink"}': changing(1, 0),
            series_name(A, "sink_workers"): changing(2, 1),
        },
    ),
    "no coordinator": fires(
        "SinkNoCoordinator",
        after=75,
        series={
            **ended(COORDINATOR_SERIES),
            series_name(A, "sink_coordinator"): changing(1, 0),
        },
    ),
    "no coordinator for half a minute": fires(
        after=120, series={series_name(A, "sink_coordinator"): f"1x{FAULT - 1} 0x1 1x{SAMPLES - FAULT}"}
    ),
    "no worker": fires(
        "SinkNoWorkers",
        "SinkWorkerSilent",
        after=75,
        series={**ended(QUIET), **{f'up{{instance="{name}:9400",job="sink"}}': changing(1, 0) for name in "ab"}},
    ),
    "retention at risk": fires("SinkRetentionAtRisk", after=30, series={LEFT: changing(WEEK - 20, 0.4 * WEEK)}),
    "half of the retention gone, and catching up": fires(
        after=1800, series={LEFT: changing(WEEK - 20, 0.4 * WEEK), LAG: rising(10_000_000, -10_000)}
    ),
    "nearly all of the retention gone": fires(
        "SinkRetentionAtRisk", after=30, series={LEFT: changing(WEEK, 0.09 * WEEK), LAG: rising(10_000_000, -10_000)}
    ),
    "the log's start comes near": fires(
        "SinkLogStartNear",
        after=75,
        series={series_name(P0, "sink_partition_log_start_offset"): turning(100_000, 150, 150, 900_000)},
    ),
    "a new topic, of which nothing has landed": fires(
        after=1800,
        series={series_name(P0, f"sink_partition_{name}_offset"): steady(0) for name in ("log_start", "committed")},
    ),
    "a table service that fails": fires(
        "SinkServiceFails",
        after=15,
        series={series_name(B, "sink_table_service_failed", service="cleaning"): changing(0, 1)},
    ),
    "a table service that has been due for a day": fires(
        "SinkServiceOverdue",
        after=75,
        series={series_name(A, "sink_table_service_due_timestamp_seconds", service="cleaning"): steady(-86_400)},
    ),
    "a table service that has been due for an hour": fires(
        after=3000,
        series={series_name(A, "sink_table_service_due_timestamp_seconds", service="cleaning"): steady(0)},
    ),
    "a clock behind": fires(
        "SinkClockOff", after=45, series={series_name(B, "sink_worker_time_seconds"): turning(0, STEP, STEP, -60)}
    ),
    "no commit for longer than one may take": fires("SinkNotCommitting", after=375, series=STANDSTILL),
    "no commit, but not for long": fires(after=270, series=STANDSTILL),
    "a takeover on a topic that was quiet for hours": fires(
        after=60,
        series={
            FRESHNESS: f"0x{FAULT - 1} 9000x2 5x{SAMPLES - FAULT}",
            LAST_COMMIT: f"-9000x{FAULT + 1} {FAULT * STEP + 50}x{SAMPLES}",
        },
    ),
    "no commit, for the sink is paused": fires(
        after=900,
        series={
            **STANDSTILL,
            series_name(A, "sink_paused"): changing(0, 1),
            series_name(B, "sink_paused"): changing(0, 1),
        },
    ),
    "a backlog that is landed": fires(after=900, series={FRESHNESS: turning(20, 0, STEP)}),
    "a lag that grows": fires("SinkLagGrows", after=3600, series={LAG: turning(100, 0, 1000)}),
    "aborts": fires(
        "SinkAborts",
        after=300,
        series={series_name(A, "sink_transactions_ended_total", outcome="ABORTED"): turning(0, 0, 0.5)},
    ),
    "one abort": fires(
        after=300, series={series_name(A, "sink_transactions_ended_total", outcome="ABORTED"): changing(0, 1)}
    ),
    "a catalogue that refuses": fires(
        "SinkCatalogFails", after=15, series={series_name(B, "sink_catalog_failures"): changing(0, 3)}
    ),
    "an audit that did not hold": fires(
        "SinkAuditFailed", after=15, series={series_name(B, "sink_audit_held"): changing(1, 0)}
    ),
    "an audit of long ago": fires(
        "SinkAuditStale", after=15, series={series_name(B, "sink_audit_timestamp_seconds"): steady(-8 * 86_400)}
    ),
    "no audit ever": fires(
        after=3000,
        series={series_name(B, "sink_audit_timestamp_seconds"): "stale", series_name(B, "sink_audit_held"): "stale"},
    ),
}


@pytest.fixture(scope="module")
def promtool() -> str:
    executable = shutil.which("promtool")
    if executable is None:
        pytest.skip("no promtool here: apt-get install prometheus")
    return executable


@pytest.mark.parametrize("name", CASES)
def test_a_fault_raises_its_alerts_and_no_other(name: str, promtool: str, tmp_path: Path) -> None:
    case = CASES[name]
    assert set(case.series) <= set(QUIET)
    expected = [{"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in sorted(case.alerts)]
    expectation = {
        # Every alert that has fired since the fault, even if it is over by now.
        "expr": f'group by (alertname) (present_over_time(ALERTS{{alertstate="firing"}}[{case.after + STEP}s]))',
        "eval_time": f"{FAULT * STEP + case.after}s",
        "exp_samples": expected,
    }
    series = [{"series": key, "values": values} for key, values in {**QUIET, **case.series}.items()]
    document: dict[str, Any] = {
        "rule_files": [str(RULES)],
        "evaluation_interval": f"{STEP}s",
        "tests": [{"interval": f"{STEP}s", "input_series": series, "promql_expr_test": [expectation]}],
    }
    file = tmp_path / "alerts.test.yaml"
    file.write_text(json.dumps(document))
    result = subprocess.run(
        [promtool, "test", "rules", str(file)],
        env={**os.environ, "GOGC": "off"},  # a third of its time goes into collecting garbage
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_rules_are_well_formed(promtool: str) -> None:
    subprocess.run([promtool, "check", "rules", "--lint-fatal", str(RULES)], check=True, timeout=60)


def _rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def test_every_alert_is_raised_by_a_case() -> None:
    raised = {alert for case in CASES.values() for alert in case.alerts}
    assert {rule["alert"] for rule in _rules() if "alert" in rule} == raised


def test_every_alert_leads_to_a_page_that_says_what_to_do() -> None:
    for rule in _rules():
        if "alert" not in rule:
            continue
        assert rule["annotations"].keys() == {"summary", "description", "runbook"}
        path, _, anchor = rule["annotations"]["runbook"].partition("#")
        headings = re.findall(r"^#+ (.+)$", (ROOT / path).read_text(), re.MULTILINE)
        assert not anchor or anchor in {
            re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings
        }
