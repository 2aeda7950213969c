"""Equipment of the demo, the documentation and builds, which the product does not import."""
