"""Values of records to columns: JSON, Avro, Protobuf.

`formats.ValueFormat` names a format, and makes its decoder for given columns. Decoders take a batch of values and
return Arrow columns with the reasons of the rows that are bad. `fields` has the columns as decoders see them, with the
rules of their values (units, case, names); `registry` asks for schemas by id; `debezium` and `connect_json` read
envelopes. Behaves as Spark's `from_json` where that has an answer.
"""
