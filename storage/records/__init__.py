"""Values that go into the engine and come out of it, and records as columns. Pure."""
