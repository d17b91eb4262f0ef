"""A demonstration with real data: stream it, kill the broker half-way, show that nothing is lost or doubled."""
