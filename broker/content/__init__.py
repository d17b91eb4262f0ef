"""What requests and answers are made of: bodies, their encodings, records as JSON."""
