"""Resolves concurrent changes to the same file groups.

Guarantee: under the table lock, a pending clustering of a file group that the transaction has changed is rolled back,
so that it can never complete with the earlier rows. If another writer has completed a change meanwhile
(`HudiTimeline.touched_since`), that is a conflict, and the transaction is formed again. A pending compaction conflicts
with nothing: rows that are appended after its plan belong to the file slice that it makes. Voided by writers without
the table lock. Raises what py4j raises.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence

from sink.hudi.client import HudiClient

NEW = "null"
"""Hudi writes it as the earlier commit of a file group that has none."""


def changed_groups(stats: Sequence[str]) -> frozenset[str]:
    """Returns ids of the existing file groups that these stats have changed."""
    parsed = (json.loads(stat) for stat in stats)
    return frozenset(stat["fileId"] for stat in parsed if stat["prevCommit"] not in (None, NEW))


def rollback_conflicting_clusterings(hudi: HudiClient, groups: Collection[str]) -> None:
    """Rolls back every pending clustering that would replace one of these file groups."""
    if groups:
        for instant in sorted(
            {clustering for group, clustering in hudi.pending_clusterings().items() if group in groups}
        ):
            hudi.roll_back_clustering(instant)
