"""One server each: Kafka, ZooKeeper, Spark's JVM."""
