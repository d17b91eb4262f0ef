"""What the API does, with no web framework: thin functions between the routes and the storage engine."""
