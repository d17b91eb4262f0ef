"""Authorization: API keys with scopes and prefixes (source: api.md §9). Without keys, nothing is checked."""
