"""The columns of the table, declared once, in the forms that Spark, Arrow and Avro need.

`table_schema.parse_ddl` makes a `TableSchema` of the text of schema.ddl; `avro` and `evolution` say how a schema is
written, and whether a table with one schema can take rows of another; `bounds` limits what strangers can send.
"""
