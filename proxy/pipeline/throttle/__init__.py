"""The throttle stage: an attempt waits at its route's limiter, then at its upstream's."""
