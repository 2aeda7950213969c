"""The process of a worker: its start, its main loop, the sinks that it hosts, and what it tells the fleet."""
