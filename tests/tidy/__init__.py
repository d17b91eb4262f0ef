"""Tests of the tree itself: what a reviewer would otherwise have to notice.

Each rule is a function from source to problems in one of the `rules_*` modules, and each has a test that
feeds it a violation: a rule that cannot fail guards nothing.
"""
