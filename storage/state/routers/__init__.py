"""Routers and how far each has come, as the log has them. Pure."""
