"""The process, its memberships, and the effects of the machines."""
