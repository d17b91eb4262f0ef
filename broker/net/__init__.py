"""Connections: what every port shares, whatever is spoken on it."""
