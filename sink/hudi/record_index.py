"""Deletes the metadata table of a restored table whose record index may be wrong, so that Hudi makes it anew.

If the metadata table was compacted since the savepoint, Hudi's restore deletes it and makes it anew from the files that
the restore then removes. Its record index names file groups that are gone: keys that are upserted go there, where some
readers miss them, and a later clustering shows them twice. Guarantee: no transaction begins after a restore before the
index was made from what the restore has left, or is away: Hudi then looks the keys up in the files. A transaction that
names the restore shows that this was done. Voided by another Hudi writer that upserts in between. Raises what py4j
raises.
"""

from __future__ import annotations

from typing import Any

from sink.hudi.client import HudiClient
from sink.hudi.instants import ActiveTimeline
from sink.hudi.moments import restores_known_to

_METADATA_TABLE = ".hoodie/metadata"
_RECORD_INDEX = "record_index"


class RecordIndex:
    """That of the table of `hudi`, which may have none."""

    def __init__(self, hudi: HudiClient) -> None:
        self._hudi = hudi
        self._restores: frozenset[str] = frozenset()
        """Those since which the index is right."""

    def require_since_restores(self, meta: Any, snapshot: ActiveTimeline) -> None:
        """Sees to an index that is right since each restore of the snapshot. The caller holds the table lock, and then
        begins an instant that names them. `meta` is a meta client that has been read under the lock.
        """
        if snapshot.restores <= self._restores:
            return
        if not snapshot.restores <= self._known_to_newest(meta, snapshot):
            config = meta.getTableConfig()
            has_index = _RECORD_INDEX in self._hudi.json(config.getMetadataPartitions())
            # A process that died while it deleted the metadata table leaves files that the table does not name.
            if has_index or (not config.isMetadataTableAvailable() and self._hudi.names(_METADATA_TABLE)):
                self._hudi.delete_metadata_table(meta)
        self._restores = snapshot.restores

    def _known_to_newest(self, meta: Any, snapshot: ActiveTimeline) -> frozenset[str]:
        """Returns the restores that the newest transaction of a sink names."""
        for entry in sorted(snapshot.instants, reverse=True):
            if entry.action == self._hudi.action:
                known = restores_known_to(self._hudi, meta, entry.requested)
                if known is not None:
                    return known
        return frozenset()
