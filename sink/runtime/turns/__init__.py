"""How many sinks share the threads, cores and coordinators of a process and of a fleet."""
