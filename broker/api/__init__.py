"""The HTTP side: from bytes of a request to a call of `broker.service`, and back."""
