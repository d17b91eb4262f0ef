"""The shapes of requests and answers: what the OpenAPI document shows and what control-plane routes validate with.

Nothing of ours is imported here, so that a client could use these models alone. Hot routes do not run them
(they decode and render bytes themselves); tests hold their answers to these models.
"""
