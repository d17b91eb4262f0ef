"""Routers and their progress, as recorded in the log. Pure."""
