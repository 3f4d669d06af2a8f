"""As much of redis-cli as the pages use: one command to the Redis of the session."""

import os
import sys

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as Gone
from redis.retry import Retry

client = Redis(
    port=int(os.environ["SESSION_REDIS"]), decode_responses=True, retry=Retry(NoBackoff(), 0)
)
try:
    answer = client.execute_command(*sys.argv[1:])  # type: ignore[no-untyped-call]  # has no types
    print(answer)  # noqa: T201 - that is what it is for
except Gone:
    if sys.argv[1].lower() != "shutdown":
        raise
