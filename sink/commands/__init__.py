"""The commands of `sink`, over `sink.operations`."""
