"""Arguments and results of the engine, and records as columns. Pure."""
