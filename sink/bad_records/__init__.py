"""The errors table and its replay.

`table.ErrorsTable` publishes the bad records of a transaction before its commit, by key, and sends them to a
dead-letter topic; `keyed_table` writes it, one writer at a time, and `ownership` says which fleets share one.
`replay.Replay` puts records into the table that are good by now. `listing` and `selection` are for commands, without
Spark.
"""
