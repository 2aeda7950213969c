"""Compares the columns of the table, as readers see them, with those of the sink's commits.

Readers take the columns from the commit that was completed last. A rewrite that began before a column was added, and is
completed after it, takes the column away. Guarantee: without a finding or a note that others changed the table, readers
see each column of each commit of the sink, with a type that has all values of it in each.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import Any

from sink.audit.report import AuditFindings, FindingKind
from sink.audit.timeline import Commit

_SHOWN = 5
_WIDER = {"int": ("long", "double"), "float": ("double",)}
"""The types that a sink gives a column instead of one."""


def check_columns(sink: str, commits: Sequence[Commit], visible: Collection[str], findings: AuditFindings) -> None:
    """Adds a finding for each column that readers miss, or see with another type. `visible` are the names that readers
    see. `commits` are in order of completion. If other writers have committed, they may have changed the columns: then
    it is a note.
    """
    own = [commit for commit in commits if sink in commit.checkpoints and commit.schema]
    if not own:
        return
    others = [commit for commit in commits if commit.by_others and commit.schema]
    cause = f"; commits of other writers have columns of their own: {', '.join(map(str, others[:_SHOWN]))}"
    kind = FindingKind.OTHERS if others else FindingKind.COLUMNS
    # Spark ignores the case of names.
    known = {name.lower() for name in visible}
    seen: set[str] = set()
    for commit in own:
        types = _types(commit.schema)
        if types is None:
            findings.add(FindingKind.UNREADABLE_INSTANT, f"commit {commit}: its schema cannot be read")
        for name in types or ():
            if name not in known and name not in seen:
                seen.add(name)
                sentence = f"column {name} of commit {commit} is not in the table's schema: readers do not see it"
                findings.add(kind, sentence + (cause if others else ""))
    newest = [commit for commit in commits if commit.schema][-1]
    for before, after in pairwise(own if newest is own[-1] else [*own, newest]):
        wanted, found = _types(before.schema) or {}, _types(after.schema) or {}
        for name in sorted(wanted.keys() & found.keys()):
            # Only sinks widen columns: a rewrite takes them as they are.
            holds = _holds(found[name], wanted[name]) if after.checkpoints else found[name] == wanted[name]
            if not holds:
                shown = json.dumps(found[name]), json.dumps(wanted[name])
                sentence = f"column {name} has type {shown[0]} in commit {after}, and {shown[1]} in commit {before}"
                findings.add(kind, sentence + (cause if others else ""))


def _holds(after: Any, before: Any, nested: bool = False) -> bool:
    """Whether a type has all values of the one before it, by what a sink may change: it widens columns, lets nulls in,
    and adds fields to structs. Within other types none widens.
    """
    if before == after:
        return True
    if isinstance(before, list) or isinstance(after, list):
        (old, had_nulls), (new, has_nulls) = _without_null(before), _without_null(after)
        return len(old) == len(new) == 1 and has_nulls >= had_nulls and _holds(new[0], old[0], nested)
    if isinstance(before, str):
        return not nested and after in _WIDER.get(before, ())
    if not isinstance(after, dict) or before.keys() != after.keys():
        return False
    if before.get("logicalType") == "decimal" and not nested:
        return _scale(before) == _scale(after) and bool(before["precision"] <= after["precision"])
    fields, former = after.get("fields", {}), before.get("fields", {})
    return (
        all(before[key] == after[key] for key in before.keys() - {"fields", "items", "values"})
        and all(_holds(after[part], before[part], True) for part in before.keys() & {"items", "values"})
        and all(name in fields and _holds(fields[name], kind, True) for name, kind in former.items())
    )


def _without_null(kind: Any) -> tuple[list[Any], bool]:
    """Returns the types of a union, or the one, and whether null is among them."""
    kinds = kind if isinstance(kind, list) else [kind]
    return [part for part in kinds if part != "null"], "null" in kinds


def _scale(kind: Any) -> Any:
    return kind.get("logicalType"), kind.get("scale", 0)


def _types(schema: str) -> dict[str, Any] | None:
    """Returns the Avro types of the columns, by name in lower case, without names, texts and defaults, which change no
    value; None for a schema that cannot be read.
    """
    try:
        return {field["name"].lower(): _bare(field["type"]) for field in json.loads(schema)["fields"]}
    except (ValueError, LookupError, TypeError, AttributeError):
        return None


def _bare(kind: Any) -> Any:
    if isinstance(kind, list):
        # The order within a union decides nothing but a default.
        return sorted((_bare(part) for part in kind), key=json.dumps)
    if not isinstance(kind, dict):
        return kind
    ignored = {"name", "namespace", "doc", "default", "aliases"}
    bare = {key: _bare(part) for key, part in kind.items() if key not in {*ignored, "fields"}}
    if "fields" in kind:
        bare["fields"] = {field["name"]: _bare(field["type"]) for field in kind["fields"]}
    return bare
