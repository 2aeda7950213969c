"""Audits a table against its checkpoints and the Kafka log: every record exactly once.

`audit.audit` does it, and returns a `report.Report`. `timeline`, `checkpoints` and `metadata_table` read what the
writer has written, `log` reads what Kafka still has; `content` compares cells, `decode` has decoders of its own for
that. The package shares no code with the writer but `sink.storage`, which opens files.
"""
