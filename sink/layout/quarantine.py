"""The directory in which a table keeps the bad records of a transaction until the coordinator publishes them."""

QUARANTINE = ".hoodie/.sink_errors"
"""A directory in the table's, with a directory for each instant; the sink removes those of instants that ended. Not in
the directory of Hudi's markers: with another file there a rollback finds no marker, and leaves all files."""
