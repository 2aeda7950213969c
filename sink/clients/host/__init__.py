"""Files, directories and the environment of a host that other users share."""
