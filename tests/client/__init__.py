"""Tests of the client, its command line and the demo."""
