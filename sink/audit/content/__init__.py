"""Compares contents: each record of the log, decoded by the auditor, with each cell of the table.

`specification` reads from a commit how its records were decoded, `framing` takes a registry's header off, `records`
makes rows, `places` says where a row has to be, `expected` writes the rows of the log to scratch files in processes of
their own, and `cells` compares them with the table's in DuckDB.
"""
