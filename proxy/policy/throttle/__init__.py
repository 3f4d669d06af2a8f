"""Rate limiting without I/O: wait queue, limiters (GCRA, sliding window), pacing, caller keys.

Limiters reserve and return the wait; they never sleep. Time is an argument.
"""
