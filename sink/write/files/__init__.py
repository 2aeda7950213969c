"""Rows as Hudi base files in bounded memory, without Hudi."""
