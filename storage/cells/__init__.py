"""Engines of the cells of a set: makes a set, backs one up, owns a cell in a bucket. `storage.platform` opens a set."""
