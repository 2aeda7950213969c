"""Resolves pending clusterings of file groups that a transaction has changed: they would put the earlier rows back.

Guarantee: under the table lock, none is left that could replace one of these file groups. One that a sink has planned,
or that another writer has planned and not begun, is rolled back. One that another writer carries out is waited for,
because that writer would complete it all the same; after `patience_ms` it counts as left by a dead writer. Voided by
writers without the table lock. Raises Unavailable, and what py4j raises.
"""

from __future__ import annotations

from collections.abc import Collection

from coordination.errors import Unavailable
from sink.hudi.client import HudiClient
from sink.hudi.instants import ActiveTimeline
from sink.hudi.leftovers import note_rollback
from sink.hudi.moments import abandoned
from sink.hudi.timeline import SINK_KEY


def resolve_pending_clusterings(
    hudi: HudiClient, snapshot: ActiveTimeline, groups: Collection[str], patience: float
) -> None:
    """`groups`: ids of the file groups that the transaction has changed. `patience`: seconds."""
    if not groups:
        return
    found = {instant for group, instant in hudi.pending_clusterings().items() if group in groups}
    for entry in sorted(entry for entry in snapshot.instants if entry.requested in found and not entry.done):
        is_of_a_sink = SINK_KEY in hudi.plan_metadata(hudi.meta_client(), entry.action, entry.requested)
        is_left = entry.state == "REQUESTED" or entry.requested in abandoned(hudi, snapshot, patience)
        if not (is_left or is_of_a_sink):
            raise Unavailable(
                f"{hudi.base_path}: another writer carries out clustering {entry.requested} of file groups that this"
                f" transaction has changed. The sink goes on when it is complete, or {patience:.0f} s after it was"
                " planned. If that writer is dead, roll the clustering back with its program."
            )
        if is_of_a_sink:
            # A process that was thought dead may still write files under it, and this one may die in the rollback.
            note_rollback(hudi, entry.requested)
        hudi.roll_back_clustering(entry.requested)
