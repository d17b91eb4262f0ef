"""The HTTP server: protocols, connections, limits and timeouts, TLS."""
