"""Takes backups of a running engine, and restores them into new data directories (docs/adr/0027)."""
