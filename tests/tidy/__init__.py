"""Tests of the tree itself: rules that a reviewer would otherwise have to check.

Each rule is a function from source to problems in one of the `rules_*` modules, and each has a test with a violation,
because a rule that cannot fail is useless.
"""
