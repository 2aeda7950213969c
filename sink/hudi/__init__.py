"""The sink's Hudi table: create or verify, begin, complete, roll back, and read the timeline.

`table.Table` is what others use: it completes an instant under the table lock, and returns a `TableOutcome`. Behind it
`client` calls Hudi, `timeline` and `commits` read what Hudi has written, `creation` makes the table or holds it against
the settings, `table_services` compacts, clusters, cleans and archives, and `lock` is the lock that all of them take.
"""
