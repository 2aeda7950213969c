"""The demo: `play` runs it, `orders` produces its events and can be used alone."""
