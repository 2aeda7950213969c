"""Spark's session in that JVM: its settings, its privacy, its stores, and the probe of a store."""
