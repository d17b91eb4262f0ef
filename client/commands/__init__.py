"""The commands of the `topics` program, one a module; `client.cli` puts them together."""
