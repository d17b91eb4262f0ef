"""Classic consumer groups: members, generations, and who gets what."""
