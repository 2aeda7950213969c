"""The commands of `sink`, over `sink.operations`.

A module for each command: it reads options, loads the configuration, calls one operation, and prints. `common` has the
options that commands share, `offline` opens Spark and ZooKeeper for commands that change a table, `auditor` and
`audit_process` run `sink.audit`. Exit status: 0 for done, 1 where the answer is no, 2 for wrong input or an error.
"""
