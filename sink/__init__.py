"""The sink around the protocol: processes, servers, files, and what people see of them.

THEORY OF OPERATION

A worker is a process that hosts one sink or many. It reads its configuration once (`config`), and compiles it: each
part gets what it needs by name, and knows no setting. It starts Spark and connects to ZooKeeper, and opens each sink in
a thread of its own: the registry's schema, the table, the errors table, Kafka. Then the sink joins its fleet, and the
machines of `coordination` decide what happens. This package carries it out.

A record's way: a participant's request reaches an engine (`write`). Python workers of Spark read Kafka with librdkafka,
and check cluster, topic and anchor while they read. They decode values as columns (`decode`), refuse bad ones, and find
keys and partitions (`layout`). Rows become Parquet files by pyarrow, or go through Hudi's writers. Write statuses go
back through ZooKeeper. The coordinator completes one instant for all of them (`hudi`), under the table's lock.

Beside the records: table services compact, cluster, clean and archive, on a worker that does not lead. Watches look at
the store, the registry and the JVM; a process whose JVM hangs ends itself. `telemetry` tells it, `http` shows it, and
`operations` judges it: status, health and their remedies are one reading, for the page, the command and the metrics.

What people run is in `commands`. What changes a table from there is a commit like any other (`bad_records` replays,
`relanding` lands offsets again). `audit` stands alone: it decodes the log with decoders of its own, and compares each
cell with what readers see. It shares nothing with the writer but `storage`, which opens files.

Errors are raised where they are born, with what to do about them. What a worker cannot do now it says once, and tries
again with back-off; what no attempt can change halts one sink, not the process. Nothing is swallowed.

The rooms, from the entry points down, each of which knows only those behind it: `cli` and `worker`, `commands`,
`runtime`, `http`, `relanding`, `bad_records`, `operations`, `config`, `write`, `hudi`, `infer`, `clients`, `layout`,
`decode`, `schema`, `telemetry`, `storage`, and `audit` beside them.
"""
