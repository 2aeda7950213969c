"""Makes `Settings` of entries, or says in sentences why they are none: all that is wrong at once, without a secret."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from coordination.errors import ConfigError
from sink.config import kafka as config_kafka
from sink.config.files import ENVIRONMENT_PREFIX, Entry, Problem, resolve, variable_name
from sink.config.groups.endpoints import TOPICS, topics_problem
from sink.config.groups.records import COLUMNS, RAW_COLUMNS, schema_problem
from sink.config.model import Settings, aliases
from sink.config.rules import FOREIGN, IMPLIED, canonical, refusals
from sink.config.spelling import KNOWN, mistaken_for
from sink.telemetry.redaction import HIDDEN, Properties, looks_secret, redact_text

PASS_THROUGH = ("kafka", "spark", "hoodie")


def settings_of(
    chosen: Mapping[str, Entry],
    place: str,
    directory: Path,
    environ: Mapping[str, str],
    problems: list[Problem],
    columns: bool = True,
) -> Settings | None:
    """Returns settings made of `chosen`, or None; adds what is wrong to `problems`, at `place` where no entry is to
    blame.

    Paths are relative to `directory`. Without `columns`, settings of the columns are left aside.
    """
    if not columns:
        chosen = {name: entry for name, entry in chosen.items() if name not in COLUMNS}
    resolved: dict[str, Entry] = {}
    for name, entry in chosen.items():
        for resolved_entry in without_problems([resolve(entry, environ, directory)], problems):
            resolved[name] = resolved_entry
    return _build(resolved, place, directory, set(chosen), problems, columns)


def without_problems(results: Iterable[Entry | Problem], problems: list[Problem]) -> Iterator[Entry]:
    for result in results:
        if isinstance(result, Problem):
            problems.append(result)
        else:
            yield result


def by_name(entries: Iterable[Entry], problems: list[Problem]) -> dict[str, Entry]:
    """Returns entries by the proper name of their setting; a name that two of them share is a problem."""
    names = aliases()
    named: dict[str, Entry] = {}
    for entry in entries:
        name = names.get(entry.key, entry.key)
        if name in named:
            sentence = f"{entry.key} is the same setting as {named[name].key} ({named[name].origin}); keep one"
            problems.append(Problem(entry.origin, sentence))
        named[name] = entry
    return named


def _build(
    entries: Mapping[str, Entry],
    place: str,
    directory: Path,
    mentioned: set[str],
    problems: list[Problem],
    columns: bool,
) -> Settings | None:
    names = aliases()
    values: dict[str, Any] = {}
    passed: dict[str, Entry] = {}
    for key, entry in entries.items():
        passes = _is_passed_through(key)
        near = _passed_near(key, names) if passes else _nearest(key, names, 0.6)
        if key in names:
            values[key] = entry.value
        elif key in FOREIGN:
            problems.append(Problem(entry.origin, f"{key} {FOREIGN[key]}"))
        elif passes and near is None:
            passed[key] = entry
        else:
            problems += _unknown(key, entry, near)
            mentioned.add(near or "")
    values |= _groups(passed, place, problems)
    problems += _schema_problems(entries, directory)
    if wrong := topics_problem([name for name in TOPICS if name in mentioned]):
        problems.append(Problem(place, wrong))
    try:
        return Settings.model_validate(values, context={"directory": directory, "columns": columns})
    except ValidationError as error:
        problems += _translate(error, entries, place, mentioned)
        raw = RAW_COLUMNS.get(entries["value.format"].text.strip().lower(), "") if "value.format" in entries else ""
        if (
            columns
            and any(detail["loc"] for detail in error.errors(include_url=False))
            and (wrong := schema_problem([name for name in COLUMNS if name in mentioned], raw))
        ):
            problems.append(Problem(place, wrong))
        return None


def _is_passed_through(key: str) -> bool:
    prefix, _, rest = key.partition(".")
    return prefix in PASS_THROUGH and bool(rest)


def _groups(passed: Mapping[str, Entry], place: str, problems: list[Problem]) -> dict[str, Properties]:
    """Returns the settings of each client together; adds what is wrong with them to `problems`."""
    groups: dict[str, dict[str, str]] = {prefix: {} for prefix in PASS_THROUGH}
    secret_names: dict[str, set[str]] = {prefix: set() for prefix in PASS_THROUGH}
    for key, entry in passed.items():
        broken = list(refusals(key, entry.text))
        problems += [Problem(entry.origin, sentence) for sentence in broken]
        if broken or key in IMPLIED:
            continue
        prefix, _, rest = key.partition(".")
        name = rest if prefix == "kafka" else key
        groups[prefix][name] = canonical(key, entry.text)
        if entry.is_secret:
            secret_names[prefix].add(name)
    for name, sentence in config_kafka.problems(groups["kafka"]):
        origin = passed.get(f"kafka.{name}")
        problems.append(Problem(origin.origin if origin else place, sentence))
    return {f"{prefix}.*": Properties(group, secret_names[prefix]) for prefix, group in groups.items()}


def _schema_problems(entries: Mapping[str, Entry], directory: Path) -> Iterator[Problem]:
    """Yields problems of the columns, before any server is asked. A file that cannot be read is told elsewhere."""
    # Imported here: it pulls in PySpark and Arrow, which a command that loads no settings can do without.
    from sink.schema import parse_ddl

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
            parse_ddl(schema, origin=schema_origin)
        except (OSError, ValueError):
            continue
        except ConfigError as error:
            hidden = f"{schema_origin}: what the reference in it stands for is no schema; check it"
            yield Problem(entry.origin, hidden if entry.is_secret else str(error))


def _nearest(key: str, names: Iterable[str], cutoff: float) -> str | None:
    near = difflib.get_close_matches(key, list(names), 1, cutoff)
    return near[0] if near else None


def _passed_near(key: str, names: Iterable[str]) -> str | None:
    """Returns the setting that a passed-through name was probably meant to be; a known name is meant as it is."""
    return None if key in KNOWN else _nearest(key, names, 0.92) or mistaken_for(key)


def _unknown(key: str, entry: Entry, near: str | None) -> Iterator[Problem]:
    if entry.variable:
        candidate = _nearest(key, [f"{ENVIRONMENT_PREFIX}{variable_name(name)}" for name in aliases()], 0.8)
        # Kubernetes and others set SINK_* variables of their own (SINK_SERVICE_HOST): only a near miss is a
        # mistake.
        if candidate:
            yield Problem(entry.origin, f"is not a setting; did you mean {candidate}?")
        return
    hint = f"did you mean {near}?" if near else "remove it, or see docs/configuration.md for what there is"
    yield Problem(entry.origin, f"{key[:100]!r} is not a setting; {hint}")


def _translate(
    error: ValidationError, entries: Mapping[str, Entry], place: str, mentioned: set[str]
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
            "missing": "is missing; set it",
            "greater_than_equal": f"is too small; the least is {context.get('ge')}",
            "less_than_equal": f"is too large; the most is {context.get('le')}",
            "literal_error": f"is not one of its values; use {context.get('expected')}".replace("'", ""),
        }.get(detail["type"], str(context.get("error", "cannot be used")))
        subject = f"{entry.key} ({_quoted(entry)})" if entry else key
        yield Problem(entry.origin if entry else place, f"{subject} {sentence}".strip())


def _quoted(entry: Entry) -> str:
    return HIDDEN if entry.is_secret or looks_secret(entry.key) else repr(redact_text(entry.text)[:80])


def sentences(problems: Iterable[Problem]) -> list[str]:
    """Returns each problem once, in a line."""
    return list(dict.fromkeys(_one_line(str(problem)) for problem in problems))


def message(path: Path, problems: Iterable[Problem]) -> str:
    lines = sentences(problems)
    if len(lines) == 1:
        return lines[0]
    return "\n".join([f"{path} cannot be used, for {len(lines)} reasons:", *(f"  {line}" for line in lines)])


def _one_line(message: str) -> str:
    """Joins a problem into one line: it quotes what was given, which may hold anything."""
    joined = re.sub(r"\s*\n\s*", " ", message)
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in joined)
