"""The port between the admin listener and the process that it belongs to: all operations."""

from typing import Protocol

from proxy.admin.dead_letters import DeadLetterOperations
from proxy.admin.declaration import worker_rules
from proxy.admin.deliveries import DeliveryOperations
from proxy.admin.keys import KeyOperations
from proxy.admin.process import ProcessOperations


class Operations(
    ProcessOperations, KeyOperations, DeadLetterOperations, DeliveryOperations, Protocol
):
    """What the application lets an operator see and do."""


WORKER_RULES = worker_rules(Operations)
"""The operations that a supervisor has its workers run, by their names."""
