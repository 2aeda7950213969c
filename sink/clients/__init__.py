"""One server each: Kafka, ZooKeeper, Spark's JVM.

`kafka.Log` asks for topics and offsets, in a child process where it may hang (`kafka_process`, `shared_log`).
`zookeeper` makes kazoo clients, and a session that is replaced when it is lost for good. `spark.start_session` starts a
JVM with its jars, its heap and its secrets; `java` and `ivy` find and fetch what it needs; `storage_probe` tries a
table's store with each library. Each takes a specification of its own, and no settings.
"""
