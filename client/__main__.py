"""`python -m client` is the `topics` program."""

from client.cli import main

main()
