"""The process, its memberships, and the effects of the machines.

`launch.run_worker` runs a `process.WorkerProcess`: it has Spark, the ZooKeeper session and the watches, and `hosting`
begins and ends its sinks. A `sink.Sink` opens its table and takes part as a `membership.Membership`, whose actors
(`actor`) run the machines and carry their requests out (`effect_handlers`). `presence` tells other workers what this
one hosts. `storage_watch`, `jvm_watchdog` and `notes` say what is wrong, once.
"""
