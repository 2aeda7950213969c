"""Pure functions: offsets, slices, write tasks, who writes which."""
