"""ZooKeeper clients, and the session of a process."""
