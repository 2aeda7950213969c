"""Where a table keeps the bad records of a transaction until the coordinator publishes them."""

QUARANTINE = ".hoodie/.sink_errors"
"""In the table's directory, by instant; table services remove what belongs to no pending one. Not among the instant's
markers: with a file there that is none, a rollback by Hudi finds no marker at all, and leaves all files."""
