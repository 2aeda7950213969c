"""`sink validate`: checks a configuration against the live servers and says all that is wrong at once.

Exit status 0 if a worker could start with it, 1 if not.
"""

from __future__ import annotations

import json

import typer
from rich.text import Text

from coordination.errors import ConfigError
from sink.commands.common import ConfigOption, JsonOption
from sink.config import load
from sink.telemetry.terminal import console, quiet

FORMAT = 1


def validate(config: ConfigOption, as_json: JsonOption = False) -> None:
    """Check settings, servers, permissions, storage and table."""
    # Imported here: table and storage pull in PySpark and Arrow, which `sink --help` can do without.
    from sink.operations.validation import CheckResult
    from sink.operations.validation import validate as validated

    quiet()
    try:
        settings = load(config)
    except ConfigError as error:
        lines = str(error).splitlines()
        findings = [CheckResult("settings", line.strip(), wrong=True) for line in (lines[1:] or lines)]
    else:
        quiet(settings.secrets)
        findings = [CheckResult("settings", f"{config} is well formed"), *validated(settings)]
    wrong = [finding for finding in findings if finding.wrong]
    if as_json:
        document = {
            "format": FORMAT,
            "valid": not wrong,
            "findings": [{"part": f.part, "sentence": f.sentence, "wrong": f.wrong, "note": f.note} for f in findings],
        }
        typer.echo(json.dumps(document, indent=2))
    else:
        out = console()
        for finding in findings:
            mark = ("note   ", "yellow") if finding.note else ("ok     ", "green")
            mark = ("wrong  ", "bold red") if finding.wrong else mark
            out.print(Text.assemble(mark, (f"{finding.part:<10}", "bold"), finding.sentence), soft_wrap=True)
        count = f"{len(wrong)} of {len(findings)} checks failed" if wrong else f"all {len(findings)} checks passed"
        out.print(Text(count, style="bold red" if wrong else "bold green"))
    if wrong:
        raise typer.Exit(1)
