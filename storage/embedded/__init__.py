"""The engine as a library: values in, records out, consumers by name, with an event loop or without one."""
