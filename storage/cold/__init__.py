"""The cold tier's store: where sealed segments go to be kept, a directory or an object store. Source: storage.md §8."""
