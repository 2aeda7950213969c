"""Values, messages and znodes."""
