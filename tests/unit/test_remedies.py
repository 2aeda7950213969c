"""Each halt leads to its own row of the runbook, from the page, from `sink status` and from the log."""

from __future__ import annotations

import io
import json
import logging
import re
from pathlib import Path

import pytest

from coordination.state.failures import HaltKind
from coordination.state.messages import Note
from sink.operations.remedies import DO, halt_remedy
from sink.runtime.watches.notes import Observer
from sink.telemetry.logs import configure
from sink.telemetry.metrics import ProcessMetrics
from tests.unit.settings_kit import minimal_settings

RUNBOOK = Path(__file__).resolve().parents[2] / "docs" / "runbook.md"
SECTIONS = {HaltKind.BAD_RECORD: "a-bad-record", HaltKind.COLUMNS: "halts", HaltKind.OTHER: "halts"}
"""Sections of the runbook that are not called like the halt that leads there."""


def anchors() -> set[str]:
    text = RUNBOOK.read_text()
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {*re.findall(r'<a id="([\w-]+)">', text), *(heading.lower().replace(" ", "-") for heading in headings)}


@pytest.mark.parametrize("kind", HaltKind)
def test_a_halt_leads_to_its_row(kind: HaltKind) -> None:
    section = halt_remedy(kind).section
    assert section == SECTIONS.get(kind, f"halt-{kind.value}")
    assert section in anchors()


def test_every_row_is_led_to_and_every_other_finding_has_a_section() -> None:
    rows = {anchor for anchor in anchors() if anchor.startswith("halt-")}
    # A bad record has a section of its own; damage has no kind of its own.
    assert rows - {halt_remedy(kind).section for kind in HaltKind} == {"halt-bad-record", "halt-unreadable"}
    assert {section for _, section in DO.values() if section} <= anchors()


@pytest.mark.parametrize(
    ("kind", "section"), [(HaltKind.LOG_TRUNCATED, "halt-log-truncated"), (HaltKind.BAD_RECORD, "a-bad-record")]
)
def test_the_log_line_of_a_halt_leads_there_too(kind: HaltKind, section: str, tmp_path: Path) -> None:
    out = io.StringIO()
    configure(stream=out)
    try:
        Observer(minimal_settings(tmp_path), ProcessMetrics().sink("orders")).note(
            Note("sink.halted", (("kind", kind.value), ("reason", "why")))
        )
    finally:
        logging.getLogger().handlers.clear()
    # What an earlier test of this process has left may log too: a gateway to a JVM that ended, when it is collected.
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    halts = [line for line in lines if line["event"] == "sink.halted"]
    assert [line["runbook"] for line in halts] == [f"docs/runbook.md#{section}"]
