"""The record index of Hudi's metadata table, by name. Imports nothing: commands need it before they load Spark."""

RECORD_INDEX = "record_index"
"""The partition of Hudi's metadata table, or the index as Spark SQL names it."""
RECORD_INDEX_ENABLED = "hoodie.metadata.global.record.level.index.enable"
