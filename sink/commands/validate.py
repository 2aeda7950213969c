"""`sink validate`: checks a configuration against the live servers and reports all problems at once.

Exit status 0 if a worker could start with it, 1 if not.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from coordination.errors import ConfigError
from sink.commands.common import ConfigOption, JsonOption, SinksOption
from sink.config import load_configuration
from sink.telemetry.terminal import console, quiet

if TYPE_CHECKING:
    from sink.operations.check_results import CheckResult
    from sink.operations.fleet_validation import FleetChecks

FORMAT = 1


def validate(
    config: ConfigOption,
    sink: SinksOption = None,
    no_sample: Annotated[bool, typer.Option("--no-sample", help="Do not read the last records of the topics.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Check settings, servers, permissions, storage, table, records. Several sinks are checked side by side."""
    quiet()
    checks = _run_checks(config, sink or (), sample=not no_sample)
    if as_json:
        typer.echo(json.dumps(_document(checks), indent=2))
    else:
        _print_checks(console(), checks)
    if any(finding.wrong for finding in checks.all_results):
        raise typer.Exit(1)


def _run_checks(config: Path, names: Sequence[str], sample: bool) -> FleetChecks:
    """Checks the settings, and checks usable sinks against the servers."""
    # Imported here: table and storage need PySpark and Arrow, which `sink --help` can do without.
    from sink.operations.check_results import CheckResult
    from sink.operations.exposure import exposure_notes
    from sink.operations.fleet_validation import FleetChecks, validate_fleet

    try:
        fleet = load_configuration(config)
        settings = [CheckResult("settings", f"{config} is well formed")]
    except ConfigError as error:
        lines = str(error).splitlines()
        settings = [CheckResult("settings", line.strip(), wrong=True) for line in (lines[1:] or lines)]
        try:
            fleet = load_configuration(config, strict=False)
        except ConfigError:
            return FleetChecks(tuple(settings), {})
    if names and fleet.misconfigured:
        misconfigured = [
            sink for sink in fleet.misconfigured.values() if any(fnmatchcase(sink.name, name) for name in names)
        ]
        settings = [CheckResult("settings", sink.reason, wrong=True) for sink in misconfigured]
        names = [name for name in names if name not in fleet.misconfigured]
        if not names:
            return FleetChecks(tuple(settings), {})
    quiet(fleet.secrets)
    checks = validate_fleet(fleet, names, sample)
    notes = (CheckResult("exposure", sentence, note=True) for sentence in exposure_notes(fleet))
    return FleetChecks((*settings, *checks.shared, *notes), checks.sinks)


def _document(checks: FleetChecks) -> dict[str, Any]:
    """Returns the JSON form. The findings of a single sink stand beside those of the configuration; several sinks have
    a list each.
    """
    document = {"format": FORMAT, "valid": not any(finding.wrong for finding in checks.all_results)}
    if len(checks.sinks) <= 1:
        return {**document, "findings": _finding_documents(checks.all_results)}
    sinks = [{"sink": name, "findings": _finding_documents(findings)} for name, findings in checks.sinks.items()]
    return {**document, "findings": _finding_documents(checks.shared), "sinks": sinks}


def _finding_documents(findings: Iterable[CheckResult]) -> list[dict[str, Any]]:
    return [
        {"part": finding.part, "sentence": finding.sentence, "wrong": finding.wrong, "note": finding.note}
        for finding in findings
    ]


def _print_checks(out: Console, checks: FleetChecks) -> None:
    if len(checks.sinks) <= 1:
        _print_findings(out, list(checks.all_results))
    else:
        _print_findings(out, checks.shared)
        for name, findings in checks.sinks.items():
            reported = [finding for finding in findings if finding.wrong or finding.note]
            out.print(_line(("ok     ", "green") if not reported else ("       ", ""), "sink", name), soft_wrap=True)
            _print_findings(out, reported, indent="  ")
    results = [finding for finding in checks.all_results if not finding.note]
    failed = sum(finding.wrong for finding in results)
    sinks = f" of {len(checks.sinks)} sinks" if len(checks.sinks) > 1 else ""
    total = f"{len(results)} checks{sinks}"
    summary = f"{failed} of {total} failed" if failed else f"all {total} passed"
    out.print(Text(summary, style="bold red" if failed else "bold green"))


def _print_findings(out: Console, findings: Sequence[CheckResult], indent: str = "") -> None:
    for finding in findings:
        mark = ("note   ", "yellow") if finding.note else ("ok     ", "green")
        mark = ("wrong  ", "bold red") if finding.wrong else mark
        out.print(_line(mark, f"{indent}{finding.part}", finding.sentence), soft_wrap=True)


def _line(mark: tuple[str, str], part: str, sentence: str) -> Text:
    return Text.assemble(mark, (f"{part:<10}", "bold"), sentence)
