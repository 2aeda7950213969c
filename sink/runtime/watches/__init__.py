"""Watches of the JVM, the store and the registry, and what the machines' notes become."""
