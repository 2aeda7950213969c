"""Status, verbs, reset, adoption, validation: commands and workers share them."""
