"""`sink validate`: checks a configuration against the live servers and says all that is wrong at once.

Exit status 0 if a worker could start with it, 1 if not.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.text import Text

from coordination.errors import ConfigError
from sink.commands.common import ConfigOption, JsonOption, SinksOption
from sink.config import load_fleet
from sink.telemetry.terminal import console, quiet

if TYPE_CHECKING:
    from sink.operations.fleet_validation import FleetChecks
    from sink.operations.validation import CheckResult

FORMAT = 1


def validate(config: ConfigOption, sink: SinksOption = None, as_json: JsonOption = False) -> None:
    """Check settings, servers, permissions, storage and table. Several sinks are checked side by side."""
    quiet()
    checks = _checked(config, sink or ())
    if as_json:
        typer.echo(json.dumps(_document(checks), indent=2))
    else:
        _show(console(), checks)
    if any(finding.wrong for finding in checks.everything):
        raise typer.Exit(1)


def _checked(config: Path, names: Sequence[str]) -> FleetChecks:
    """Checks the settings, and the sinks that can be used against the servers."""
    # Imported here: table and storage pull in PySpark and Arrow, which `sink --help` can do without.
    from sink.operations.fleet_validation import FleetChecks, validate_fleet
    from sink.operations.validation import CheckResult

    try:
        fleet = load_fleet(config)
        settings = [CheckResult("settings", f"{config} is well formed")]
    except ConfigError as error:
        lines = str(error).splitlines()
        settings = [CheckResult("settings", line.strip(), wrong=True) for line in (lines[1:] or lines)]
        try:
            fleet = load_fleet(config, strict=False)
        except ConfigError:
            return FleetChecks(tuple(settings), {})
    if names and fleet.misconfigured:
        wrong = [sink for sink in fleet.misconfigured.values() if any(fnmatchcase(sink.name, name) for name in names)]
        settings = [CheckResult("settings", sink.reason, wrong=True) for sink in wrong]
        names = [name for name in names if name not in fleet.misconfigured]
        if not names:
            return FleetChecks(tuple(settings), {})
    quiet(fleet.secrets)
    checks = validate_fleet(fleet, names)
    return FleetChecks((*settings, *checks.shared), checks.sinks)


def _document(checks: FleetChecks) -> dict[str, Any]:
    """Returns the JSON form: findings of one sink stand beside those of the configuration; several have a list of their
    own.
    """
    document = {"format": FORMAT, "valid": not any(finding.wrong for finding in checks.everything)}
    if len(checks.sinks) <= 1:
        return {**document, "findings": _plain(checks.everything)}
    sinks = [{"sink": name, "findings": _plain(findings)} for name, findings in checks.sinks.items()]
    return {**document, "findings": _plain(checks.shared), "sinks": sinks}


def _plain(findings: Iterable[CheckResult]) -> list[dict[str, Any]]:
    return [{"part": f.part, "sentence": f.sentence, "wrong": f.wrong, "note": f.note} for f in findings]


def _show(out: Console, checks: FleetChecks) -> None:
    if len(checks.sinks) <= 1:
        _show_findings(out, list(checks.everything))
    else:
        _show_findings(out, checks.shared)
        for name, findings in checks.sinks.items():
            told = [finding for finding in findings if finding.wrong or finding.note]
            out.print(_line(("ok     ", "green") if not told else ("       ", ""), "sink", name), soft_wrap=True)
            _show_findings(out, told, indent="  ")
    everything = list(checks.everything)
    wrong = sum(finding.wrong for finding in everything)
    sinks = f" of {len(checks.sinks)} sinks" if len(checks.sinks) > 1 else ""
    checked = f"{len(everything)} checks{sinks}"
    count = f"{wrong} of {checked} failed" if wrong else f"all {checked} passed"
    out.print(Text(count, style="bold red" if wrong else "bold green"))


def _show_findings(out: Console, findings: Sequence[CheckResult], indent: str = "") -> None:
    for finding in findings:
        mark = ("note   ", "yellow") if finding.note else ("ok     ", "green")
        mark = ("wrong  ", "bold red") if finding.wrong else mark
        out.print(_line(mark, f"{indent}{finding.part}", finding.sentence), soft_wrap=True)


def _line(mark: tuple[str, str], part: str, sentence: str) -> Text:
    return Text.assemble(mark, (f"{part:<10}", "bold"), sentence)
