"""Compares the columns of the table, as readers see them, with those that the sink's commits have.

A rewrite that completes last says what the columns are, and may have begun before an evolution. Guarantee: without a
finding or a note, readers see each column of each commit of the sink, and no type of its newest commit is another one.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

from sink.audit.report import AuditFindings, FindingKind
from sink.audit.timeline import Commit

_SHOWN = 5


def check_columns(sink: str, commits: Sequence[Commit], visible: Collection[str], findings: AuditFindings) -> None:
    """`visible` are the names of the columns that readers see. `commits` are in order of completion."""
    own = [commit for commit in commits if sink in commit.checkpoints and commit.schema]
    if not own:
        return
    others = [commit for commit in commits if commit.by_others and commit.schema]
    texts = f"; commits of other writers have columns of their own: {', '.join(map(str, others[:_SHOWN]))}"
    kind = FindingKind.OTHERS if others else FindingKind.COLUMNS
    known = {name.lower() for name in visible}
    seen: set[str] = set()
    for commit in own:
        for name in _types(commit.schema):
            if name.lower() not in known and name not in seen:
                seen.add(name)
                sentence = f"column {name} of commit {commit} is none of the table's: readers do not see it"
                findings.add(kind, sentence + (texts if others else ""))
    newest = [commit for commit in commits if commit.schema][-1]
    if newest is own[-1]:
        return
    wanted, found = _types(own[-1].schema), _types(newest.schema)
    for name in sorted(wanted.keys() & found.keys()):
        if wanted[name] != found[name]:
            types = json.dumps(found[name]), json.dumps(wanted[name])
            sentence = f"column {name} has type {types[0]} since commit {newest}, and {types[1]} in commit {own[-1]}"
            findings.add(kind, sentence + (texts if others else ""))


def _types(schema: str) -> dict[str, Any]:
    """Returns the types of the columns, without the names that Avro gives to them."""
    try:
        return {field["name"]: _bare(field["type"]) for field in json.loads(schema)["fields"]}
    except (ValueError, LookupError, TypeError):
        return {}


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
