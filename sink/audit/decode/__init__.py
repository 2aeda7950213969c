"""The auditor's own decoders: what a record's value has to be in the table, by `docs/values.md`.

They share nothing with the writer's decoders, `sink.decode` and `sink.schema`: two readings of one contract, so that an
error in one of them is seen. Columns come as Spark writes a schema in JSON, rules as plain texts.
"""
