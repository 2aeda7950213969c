"""Columns from samples of records and from registered schemas.

`registered` makes columns of Avro, JSON Schema and Protobuf schemas, `json_samples` and `message_rows` of records,
`json_envelopes` sees through Debezium and Kafka Connect, `record_types` says which types of a union land. Each reports
the fields that no column can hold. For `schema.subject`, and for `sink infer`.
"""
