"""Settings that the pages prescribe are settings that the sink takes."""

from __future__ import annotations

import re
from pathlib import Path

from sink.config.rules import refusals

ROOT = Path(__file__).parents[2]
SETTING = re.compile(r"\b(spark\.[\w.]*\w)=([^\s`|;,)]+)")


def test_no_page_prescribes_a_setting_of_spark_that_the_sink_refuses() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    prescribed = [(page.name, *setting) for page in pages for setting in SETTING.findall(page.read_text())]
    assert len(prescribed) > 10
    refused = [(page, name, value) for page, name, value in prescribed if any(refusals(name, value))]
    assert refused == []
