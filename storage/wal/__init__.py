"""The sharded write-ahead log: frames in files, one writer a shard."""
