"""Makes `Settings` of entries, or reports all their problems at once, in sentences without secrets."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from coordination.errors import ConfigError
from sink.config import kafka as config_kafka
from sink.config.files import ENVIRONMENT_PREFIX, PASS_THROUGH, Entry, Problem, resolve, variable_name
from sink.config.groups.endpoints import TOPIC_SETTINGS, topic_settings_problem
from sink.config.groups.records import COLUMN_SETTINGS, RAW_COLUMNS, schema_problem
from sink.config.model import Settings, aliases
from sink.config.rules import FOREIGN, canonical, refusals
from sink.config.spelling import KNOWN, mistaken_for
from sink.telemetry.redaction import HIDDEN, Properties, looks_secret, redact_text

_MOST_SEARCHED = 500
"""Names for which a similar setting is looked for, a millisecond each."""


def settings_of(
    chosen: Mapping[str, Entry],
    origin: str,
    directory: Path,
    environ: Mapping[str, str],
    problems: list[Problem],
    columns: bool = True,
) -> Settings | None:
    """Returns settings made of `chosen`, or None; adds problems to `problems`, with `origin` where no entry is to
    blame.

    Paths are relative to `directory`. Without `columns`, settings of the columns are ignored.
    """
    if not columns:
        chosen = {name: entry for name, entry in chosen.items() if name not in COLUMN_SETTINGS}
    resolved: dict[str, Entry] = {}
    for name, entry in chosen.items():
        for resolved_entry in without_problems([resolve(entry, environ, directory)], problems):
            resolved[name] = resolved_entry
    return _build(resolved, origin, directory, set(chosen), problems, columns)


def without_problems(results: Iterable[Entry | Problem], problems: list[Problem]) -> Iterator[Entry]:
    for entry_or_problem in results:
        if isinstance(entry_or_problem, Problem):
            problems.append(entry_or_problem)
        else:
            yield entry_or_problem


def by_name(entries: Iterable[Entry], problems: list[Problem]) -> dict[str, Entry]:
    """Returns entries by the proper name of their setting; a name that two of them share is a problem."""
    names = aliases()
    named: dict[str, Entry] = {}
    for entry in entries:
        name = names.get(entry.key, entry.key)
        if name in named:
            sentence = f"{entry.key} is the same setting as {named[name].key} ({named[name].origin}). Keep one."
            problems.append(Problem(entry.origin, sentence))
        named[name] = entry
    return named


def _build(
    entries: Mapping[str, Entry],
    origin: str,
    directory: Path,
    mentioned: set[str],
    problems: list[Problem],
    columns: bool,
) -> Settings | None:
    names = aliases()
    values: dict[str, Any] = {}
    passed: dict[str, Entry] = {}
    searched = 0
    for key, entry in entries.items():
        if key in names:
            values[key] = entry.value
            continue
        if key in FOREIGN:
            problems.append(Problem(entry.origin, f"{key} {FOREIGN[key]}"))
            continue
        near = _near(key) if searched < _MOST_SEARCHED else None
        searched += key not in KNOWN
        if near is None and _is_passed_through(key):
            passed[key] = entry
        else:
            problems += _unknown(key, entry, near)
            mentioned.add(near or "")
    values |= _groups(passed, origin, problems)
    problems += _schema_problems(entries, directory)
    if sentence := topic_settings_problem([name for name in TOPIC_SETTINGS if name in mentioned]):
        problems.append(Problem(origin, sentence))
    try:
        return Settings.model_validate(values, context={"directory": directory, "columns": columns})
    except ValidationError as error:
        problems += _translate(error, entries, origin, mentioned)
        raw_columns = (
            RAW_COLUMNS.get(entries["value.format"].text.strip().lower(), "") if "value.format" in entries else ""
        )
        if (
            columns
            and any(detail["loc"] for detail in error.errors(include_url=False))
            and (sentence := schema_problem([name for name in COLUMN_SETTINGS if name in mentioned], raw_columns))
        ):
            problems.append(Problem(origin, sentence))
        return None


def _is_passed_through(key: str) -> bool:
    prefix, _, name = key.partition(".")
    return prefix in PASS_THROUGH and bool(name)


def _groups(passed: Mapping[str, Entry], origin: str, problems: list[Problem]) -> dict[str, Properties]:
    """Returns the settings of each client; adds their problems to `problems`."""
    groups: dict[str, dict[str, str]] = {prefix: {} for prefix in PASS_THROUGH}
    secret_names: dict[str, set[str]] = {prefix: set() for prefix in PASS_THROUGH}
    for key, entry in passed.items():
        broken_rules = list(refusals(key, entry.text))
        problems += [Problem(entry.origin, sentence) for sentence in broken_rules]
        if broken_rules:
            continue
        prefix, _, name_below = key.partition(".")
        client_name = name_below if prefix == "kafka" else key
        groups[prefix][client_name] = canonical(key, entry.text)
        if entry.is_secret:
            secret_names[prefix].add(client_name)
    for client_name, sentence in config_kafka.problems(groups["kafka"]):
        passed_entry = passed.get(f"kafka.{client_name}")
        problems.append(Problem(passed_entry.origin if passed_entry else origin, sentence))
    return {f"{prefix}.*": Properties(group, secret_names[prefix]) for prefix, group in groups.items()}


def _schema_problems(entries: Mapping[str, Entry], directory: Path) -> Iterator[Problem]:
    """Yields problems of the columns without asking a server. Pydantic reports a file that cannot be read."""
    for name in ("schema.ddl", "schema.file"):
        entry = entries.get(name)
        if entry is None or not entry.text.strip():
            continue
        schema_origin = name
        try:
            schema = entry.text
            if name == "schema.file":
                file = Path(directory, schema.strip())
                schema_origin, schema = f"{name} ({file})", file.read_text("utf-8")
        except (OSError, ValueError):
            continue
        if sentence := _schema_problem(schema, schema_origin):
            hidden_text = f"{schema_origin}: what the reference in it stands for is not a schema. Check it."
            yield Problem(entry.origin, hidden_text if entry.is_secret else sentence)


@lru_cache(100)
def _schema_problem(schema: str, origin: str) -> str:
    """Returns why a text describes no columns; empty if it does, or is none. Sinks of one file often share it."""
    # Imported here: it pulls in PySpark and Arrow, which a command that loads no settings can do without.
    from sink.schema.table_schema import parse_ddl

    try:
        parse_ddl(schema, origin=origin)
    except ConfigError as error:
        return str(error)
    except (OSError, ValueError):
        return ""
    return ""


def _nearest(key: str, names: Iterable[str], cutoff: float) -> str | None:
    matches = difflib.get_close_matches(key, list(names), 1, cutoff)
    return matches[0] if matches else None


@lru_cache(1000)
def _near(key: str) -> str | None:
    """Returns the setting that an unknown name probably stands for; None if none is near, or the name is a known one
    that is passed through. Sinks of one file share most names, and the search is slow.
    """
    if not _is_passed_through(key):
        return _nearest(key, aliases(), 0.6)
    return None if key in KNOWN else _nearest(key, aliases(), 0.92) or mistaken_for(key)


def _unknown(key: str, entry: Entry, near: str | None) -> Iterator[Problem]:
    if entry.variable:
        candidate = _nearest(key, [f"{ENVIRONMENT_PREFIX}{variable_name(name)}" for name in aliases()], 0.8)
        # Kubernetes sets SINK_* variables of its own (SINK_SERVICE_HOST), so only a near miss is a mistake.
        if candidate:
            yield Problem(entry.origin, f"is not a setting. Did you mean {candidate}?")
        return
    hint = f"Did you mean {near}?" if near else "Remove it, or see docs/configuration.md for what there is."
    yield Problem(entry.origin, f"{key[:100]!r} is not a setting. {hint}")


def _translate(
    error: ValidationError, entries: Mapping[str, Entry], origin: str, mentioned: set[str]
) -> Iterator[Problem]:
    """Yields pydantic's errors as sentences, without the values of secrets."""
    fields = {name: field.alias for name, field in Settings.model_fields.items()}
    for detail in error.errors(include_url=False):
        key = str(detail["loc"][0]) if detail["loc"] else ""
        key = fields.get(key) or key
        if detail["type"] == "default_factory_not_called" or (detail["type"] == "missing" and key in mentioned):
            continue
        entry = entries.get(key)
        context = detail.get("ctx", {})
        sentence = {
            "missing": "is missing. Set it.",
            "greater_than_equal": f"is too small. The least is {context.get('ge')}.",
            "less_than_equal": f"is too large. The most is {context.get('le')}.",
            "literal_error": f"is not one of its values. Use {context.get('expected')}.".replace("'", ""),
        }.get(detail["type"], str(context.get("error", "cannot be used")))
        subject = f"{entry.key} ({_quoted(entry)})" if entry else key
        yield Problem(entry.origin if entry else origin, f"{subject} {sentence}".strip())


def _quoted(entry: Entry) -> str:
    return HIDDEN if entry.is_secret or looks_secret(entry.key) else repr(redact_text(entry.text)[:80])


def sentences(problems: Iterable[Problem]) -> list[str]:
    """Returns each problem once, as one line."""
    return list(dict.fromkeys(_one_line(str(problem)) for problem in problems))


def message(path: Path, problems: Iterable[Problem]) -> str:
    lines = sentences(problems)
    if len(lines) == 1:
        return lines[0]
    return "\n".join([f"{path} cannot be used, for {len(lines)} reasons:", *(f"  {line}" for line in lines)])


def _one_line(message: str) -> str:
    """Joins a problem into one line: it quotes values, which may contain anything."""
    joined = re.sub(r"\s*\n\s*", " ", message)
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in joined)
