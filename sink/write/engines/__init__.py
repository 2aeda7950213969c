"""One Spark job for the write tasks of a transaction: its input, its engines, its reports, and how it fails."""
