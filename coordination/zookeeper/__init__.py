"""Reads and writes the znodes, elects and locks."""
