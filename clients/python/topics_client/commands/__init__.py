"""The commands of the `topics` program, one a module; `topics_client.cli` loads the one that is called."""
