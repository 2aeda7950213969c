"""A fleet to look at: `play` is the demo itself, `orders` produces its events, for whoever wants some."""
