"""Holds the registered schemas that decoded a transaction against those that decoded earlier ones.

A schema id is a name: another registry, or one that was built anew, gives the same ids to other schemas. So each commit
carries id and fingerprint of the schemas that decoded its records and those before.

Guarantee: no transaction is committed in which one id has two fingerprints, within the transaction or against the
`MOST_REMEMBERED` ids that were used last. Voided for an id that was used last before that many others. Pure; raises
nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from coordination.state.failures import Failure, FailureKind

MOST_REMEMBERED = 500
"""An id with its fingerprint takes some thirty bytes of each commit."""
Schemas = Iterable[tuple[str, str]]
"""Ids, each with its fingerprint. An id may occur twice."""


def conflict(known: Mapping[str, str], used: Schemas) -> Failure | None:
    """Returns the failure for the first id with another fingerprint than the known one; None if there is none."""
    seen = dict(known)
    for schema_id, fingerprint in sorted(used):
        before = seen.setdefault(schema_id, fingerprint)
        if before != fingerprint:
            return Failure(
                FailureKind.SCHEMA_CHANGED,
                f"schema registry: id {schema_id} is not the schema that it was: earlier records were decoded with the"
                f" fingerprint {before}, these with {fingerprint}. The ids are of another registry. Correct"
                " schema.registry.url on all workers and run `sink reset --yes`. If the registry was built anew, give"
                " schema.registry.name another value as well.",
            )
    return None


def remembered(known: Mapping[str, str], used: Schemas) -> dict[str, str]:
    """Returns what the next commit carries: the schemas that were used last, in the order of their last use."""
    now = dict(sorted(used))
    kept = [(schema_id, fingerprint) for schema_id, fingerprint in known.items() if schema_id not in now]
    return dict([*kept, *now.items()][-MOST_REMEMBERED:])
