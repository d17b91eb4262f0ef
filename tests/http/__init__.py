"""The HTTP API: most tests use the application in process, some use the server over sockets."""
