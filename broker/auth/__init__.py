"""Authorization: API keys with scopes and prefixes. Without keys, nothing is checked.

Source: docs/reference/api.md#keys.
"""
