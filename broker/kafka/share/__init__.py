"""Share groups (KIP-932): members that take jobs of queues, each job to one of them."""
