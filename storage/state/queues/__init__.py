"""Jobs of a queue and their leases, as the log has them. Pure."""
