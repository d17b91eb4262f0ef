"""The HTTP API: most of it against the application in process, the server itself over sockets."""
