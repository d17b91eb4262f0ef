"""What answers and request bodies may hold in memory: one bound for all of them, and one for each connection.

budget     how much is held, and by whom; who waits for room; pure
memory     the two budgets of a broker, waiting with a deadline, connections that take nothing, what is logged
giving     freed memory goes back to the system
"""
