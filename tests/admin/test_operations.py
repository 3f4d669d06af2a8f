"""Every operation is declared once; the supervisor does what its workers do not."""

import inspect

from proxy.admin.declaration import worker_rules
from proxy.admin.operations import WORKER_RULES, Operations
from proxy.app.operations import AppOperations
from proxy.runtime.workers.supervisor import Supervisor


def operations() -> dict[str, object]:
    return {
        name: member
        for name, member in inspect.getmembers(Operations, inspect.isfunction)
        if not name.startswith("_")
    }


def test_the_operations_that_workers_run() -> None:
    assert WORKER_RULES.keys() == {
        "find_attempts",
        "list_keys",
        "show_key",
        "release_key",
        "list_dead_letters",
        "find_dead_letter",
        "drop_dead_letter",
        "drop_dead_letters",
        "replay_obstacle",
        "replay_dead_letter",
        "list_deliveries",
        "find_delivery",
        "retry_obstacle",
        "retry_delivery",
        "cancel_delivery",
    }
    assert worker_rules(Operations) == WORKER_RULES


def test_what_may_take_long_has_no_limit() -> None:
    takes_long = {name for name, rule in WORKER_RULES.items() if rule.takes_long}
    assert takes_long == {"drop_dead_letters", "replay_dead_letter"}


def test_a_supervisor_does_the_rest_itself() -> None:
    for name in operations().keys() - WORKER_RULES.keys():
        assert name in vars(Supervisor), name
    for name in WORKER_RULES:
        assert name not in vars(Supervisor), f"{name} is asked of workers"


def test_an_app_does_all_of_them_as_they_are_declared() -> None:
    for name, declared in operations().items():
        done = vars(AppOperations)[name]
        assert inspect.signature(done) == inspect.signature(declared), name  # type: ignore[arg-type]  # a function
