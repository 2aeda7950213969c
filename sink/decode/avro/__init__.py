"""Avro values as columns, by the schema that wrote them."""
