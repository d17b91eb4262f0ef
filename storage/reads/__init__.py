"""The read path: from a cursor to records, wherever they are."""
