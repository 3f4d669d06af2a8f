"""The settings, that is the configuration once it has been read: immutable values, by section.

A setting is declared here with its type and default; its YAML key, with its text, in
``config/schema/`` under the same section. Imports ``http/header_edits`` and nothing else of ours;
every other package may import it, and should import the names below from here. The settings of one
kind of store are in ``store``, for that store and for what reads its URL or opens it.
"""

from proxy.policy.settings.dead_letter import ALWAYS_DROPPED, REFUSALS, DeadLetterSettings
from proxy.policy.settings.hand_off import (
    CREDENTIAL_FIELDS,
    MOST_DELIVERIES_UNDER_WAY,
    MOST_DELIVERY_ATTEMPTS,
    USUAL_DELIVERED,
    USUAL_DELIVERY_OUTCOMES,
    DeliveriesSettings,
    DeliveryBackoff,
    HandOffCredentials,
    HandOffSettings,
    HandOffWhen,
)
from proxy.policy.settings.idempotency import (
    NEVER_KEPT_BY_CLASS,
    USUAL_KEPT,
    AmbiguousKeys,
    IdempotencySettings,
    InFlightDuplicates,
    KeysWithoutStore,
)
from proxy.policy.settings.listen import Limits, Listen, ListenTls
from proxy.policy.settings.process import AccessLogMode, Settings
from proxy.policy.settings.retry import (
    USUAL_KINDS,
    USUAL_OUTCOMES,
    USUAL_STATUSES,
    Backoff,
    BackoffStrategy,
    FallbackSettings,
    JitterStrategy,
    Outcomes,
    RetrySettings,
    UnsafeRetries,
)
from proxy.policy.settings.route import Match, RouteSettings
from proxy.policy.settings.store import MemorySettings, StoreSettings
from proxy.policy.settings.throttle import (
    CallerSource,
    Rate,
    RateAlgorithm,
    ThrottleKey,
    ThrottleSettings,
    ThrottleWithoutStore,
)
from proxy.policy.settings.upstream import (
    USUAL_REFUSALS,
    BreakerSettings,
    BudgetSettings,
    HonouredKey,
    LoadBalancing,
    Origin,
    UpstreamSettings,
    UpstreamTls,
)
