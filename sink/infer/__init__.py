"""Columns from samples of records and from registered schemas."""
