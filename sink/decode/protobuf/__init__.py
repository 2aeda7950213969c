"""Protobuf values as columns, by descriptors from a registry or a file."""
