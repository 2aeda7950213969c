"""Reads and writes the znodes, elects and locks.

`keeper.Keeper` gives a snapshot of a sink's tree, from a cache that watches keep fresh, and writes fenced multis.
`election` is one kazoo lock for each term; `table_service_lock` elects who runs table services. `records`,
`worker_records` and `worker_summaries` are beside the protocol: what processes host, and what an audit or a catalogue
has come to. Raises what `coordination.errors` has.
"""
