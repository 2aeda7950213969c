"""Properties of a table (`hoodie.properties`) that no setting decides, where another writer has made the table.

Guarantee: a property with which the sink's files would be read otherwise than they were written, or its instants be
looked for elsewhere, has its usual value. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

_NO_SETTING = "no setting: name another table"
_USUAL: Mapping[str, tuple[str, str]] = {
    "hoodie.table.cdc.enabled": ("false", "the sink writes no change log beside its files"),
    "hoodie.table.multiple.base.file.formats.enable": ("false", "the sink writes Parquet"),
    "hoodie.table.log.file.format": ("hoodie_log", "the sink writes log files of Hudi's own format"),
    "hoodie.table.format": ("native", "the sink writes Hudi's own timeline"),
    "hoodie.datasource.write.drop.partition.columns": ("false", "the sink's files hold all columns of their rows"),
    "hoodie.datasource.write.slash.separated.date.partitioning": ("false", "partition.time.format makes such paths"),
    "hoodie.partition.metafile.use.base.format": ("false", "the sink marks its partitions by text files"),
    "hoodie.allow.operation.metadata.field": ("false", "a compaction would lose rows"),
    "hoodie.timeline.layout.version": ("2", "the sink writes that of table version 9"),
    "hoodie.timeline.path": ("timeline", "the sink and its auditor look there"),
    "hoodie.timeline.history.path": ("history", "the sink and its auditor look there"),
    "hoodie.table.index.defs.path": (".hoodie/.index_defs/index.json", "the sink looks there"),
}
"""The usual value of each property, in lower case, and why there is no other. A table need not have the property."""
_BOOTSTRAP = "hoodie.bootstrap.base.path"
_MERGE_PROPERTIES = "hoodie.record.merge.property."


def unusual_properties(properties: Mapping[str, str], merges_rows: bool) -> Iterator[str]:
    """Yields a sentence for each property that makes the table unusable; `merges_rows`: whether the sink writes rows
    that may be merged with others.
    """
    for name, (usual, why) in _USUAL.items():
        value = properties.get(name, usual).strip()
        if value.lower() != usual:
            yield f"the table's {name}: {value}; {why} ({_NO_SETTING})"
    if source := properties.get(_BOOTSTRAP):
        yield f"the table's rows are in part in files of {source}, which were never Hudi's ({_NO_SETTING})"
    merging = sorted(name for name in properties if name.startswith(_MERGE_PROPERTIES))
    if merges_rows and merging:
        yield (
            f"the table's {merging[0]}: {properties[merging[0]]}. Rows of the sink would be deleted or merged by it"
            f" ({_NO_SETTING})."
        )
