"""One sink in a process: its life, its membership in the fleet, its requests, and what runs beside its commits."""
