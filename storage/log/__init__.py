"""The write path: checked records become frames, one writer a shard logs them, `apply` publishes them."""
