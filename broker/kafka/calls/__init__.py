"""What the port does for each kind of request, a file an area."""
