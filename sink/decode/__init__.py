"""Values of records to columns: JSON, Avro, Protobuf."""
