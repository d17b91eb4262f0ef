"""Who may do what: API keys with scopes and prefixes (source: api.md §9). Without keys none of it is asked."""
