"""Jobs of a queue and their leases, as recorded in the log. Pure."""
