"""One file an endpoint family. Handlers parse, call one function of `broker.service`, and shape the answer."""
