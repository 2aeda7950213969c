"""Compares the columns of the table, as readers see them, with those of the sink's commits.

Readers take the columns from the commit that was completed last. A rewrite that began before a column was added, and is
completed after it, takes the column away. Guarantee: without a finding or a note that others changed the table, readers
see each column of each commit of the sink, and with the type that the sink's newest commit gives it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

from sink.audit.report import AuditFindings, FindingKind
from sink.audit.timeline import Commit

_SHOWN = 5


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
    if newest is own[-1]:
        return
    wanted, found = _types(own[-1].schema) or {}, _types(newest.schema) or {}
    for name in sorted(wanted.keys() & found.keys()):
        if wanted[name] != found[name]:
            shown = json.dumps(found[name]), json.dumps(wanted[name])
            sentence = f"column {name} has type {shown[0]} in commit {newest}, and {shown[1]} in commit {own[-1]}"
            findings.add(kind, sentence + (cause if others else ""))


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
