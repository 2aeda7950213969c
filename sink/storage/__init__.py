"""The table's file system and its credentials, for writers, readers, the auditor and the commands alike."""
