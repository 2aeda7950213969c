"""An oracle for rewrites: sequences on real Spark, Hudi and storage, each compared with a model after every step.

A seed chooses a table, and the steps: transactions, table services, savepoints, restores, rollbacks and other writers,
many of them killed, stopped, robbed of their lock or refused by the disk at one of their moments. `python -m
tests.rewrites --seeds 0..500` runs many seeds, or one with its trace.
"""
