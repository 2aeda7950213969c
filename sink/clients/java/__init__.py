"""The JVM: where Java is, its jars, its options and heap, its start, and what its errors say."""
