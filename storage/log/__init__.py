"""The write path: `append` makes frames of records, `writer` writes and syncs them, `publisher` applies them."""
