"""The rates of one bucket that all instances share, and when to ask the store for permits.

While the store is down, a degraded limiter takes the place of its permits (``degraded.py``). When
it is back it is told what was sent meanwhile, which it did not count.
"""

from dataclasses import KW_ONLY, dataclass, field
from math import ceil

from proxy.http.refusal import QuotaLeft
from proxy.policy.settings import ThrottleSettings, ThrottleWithoutStore
from proxy.policy.throttle.limiter import LocalRateLimiter
from proxy.stores.redis.degraded import degraded_rates
from proxy.stores.redis.lease_terms import LeaseTerms, lease_terms
from proxy.stores.redis.leased_permits import LeasedPermits
from proxy.stores.redis.limiter import SharedLimiter

_PACE = 0.002
"""Seconds per instance between two commands while the limit is reached: the more instances ask, the
more permits there must be for it to be worth while."""
_GUESS = 0.005
"""Seconds after which to look again if it is not known when permits come."""
_GRAIN = 0.0005
"""Seconds: permits that become usable within the same of these are one batch."""
_SAME_PAUSE = 0.005
"""Seconds by which two messages about one pause may differ."""


@dataclass(slots=True, eq=False, repr=False)
class SharedRateLimiter(SharedLimiter):
    """Permits of which all instances together have so many."""

    _permit_life: float | None = None
    """Seconds for which a permit lives, if the rates do not decide."""
    _: KW_ONLY
    _terms: LeaseTerms = field(init=False)
    _leases: LeasedPermits = field(init=False)
    _epoch: int = 0
    """Answers to commands of an earlier epoch bring no permits."""
    _is_contested: bool = False
    """Whether we got less than we asked for."""
    _next: float = 0.0
    """Before that moment there is no permit for certain."""
    _degraded: LocalRateLimiter | None = None
    """The limiter in force while the store is down, and for a moment after that."""
    _sent_alone: int = 0
    """Calls that were sent without the store, and of which it does not know yet."""
    _alone_since: float = 0.0
    _last_alone: float = 0.0
    """When the last of them was sent, or later."""
    _paused_until: float = 0.0
    """When the last pause is over."""

    def __post_init__(self) -> None:
        SharedLimiter.__post_init__(self)
        self._terms = lease_terms(self._settings, self._permit_life)
        now = self._clock.monotonic()
        self._leases = LeasedPermits(self._terms.life, self._terms.interval, now)
        if not self._store_is_up:
            self._do_without_store(now)

    def __repr__(self) -> str:
        permits = f"{self._leases.left} permits" if self._store_is_up else "no store"
        return f"<rates of {self._commands}: {permits}>"

    # Permits at hand.

    def take(self, now: float, reserved: int) -> bool:
        """Use a permit, if there is one besides the *reserved* ones."""
        if now < self._paused_until:
            return False
        degraded = self._degraded
        if degraded is not None and not degraded.take(now, reserved):
            return False
        if not self._store_is_up:
            self._sent_alone += 1
            self._last_alone = now
        elif self._terms.rates:
            leases = self._leases
            if not leases.take(now, reserved):
                if degraded is not None:
                    degraded.give_back()
                return False
            if leases.left < leases.low:
                self._ask_ahead(now)
        return True

    def give_back(self) -> None:
        """Undo the last take."""
        if self._degraded is not None:
            self._degraded.give_back()
        if not self._store_is_up:
            self._sent_alone -= 1
        elif self._terms.rates:
            self._leases.take_back()

    def wait(self, now: float, count: int) -> float:
        """Return the seconds until the *count*-th call from now is allowed; 0: it is now.

        Other instances use the same permits, so this is the least that it can be.
        """
        wait = 0.0 if self._degraded is None else self._degraded.wait(now, count)
        wait = max(wait, self._paused_until - now)
        if not self._store_is_up or not self._terms.rates:
            return wait
        missing = count - self._leases.count(now)
        if missing <= 0:
            return max(wait, self._leases.wait(now, count))
        known = max(self._next, self._paused_until)
        next_in = known - now if now < known else _GUESS
        return max(wait, next_in + (missing - 1) * self._terms.interval)

    def is_idle(self, now: float) -> bool:
        """Tell whether a new limiter could replace this one without any caller noticing."""
        if now < self._paused_until or self.is_asking or self._leases.count(now):
            return False
        return self._degraded is None or self._degraded.is_idle(now)

    def quotas(self, now: float) -> tuple[QuotaLeft, ...]:
        """Return what is left, as far as is known here: either nothing or enough."""
        if self._degraded is not None and not self._store_is_up:
            return self._degraded.quotas(now)
        rates = LocalRateLimiter(self._settings, now)
        wait = self.wait(now, 1)
        if wait > 0:
            rates.close_until(now, now + wait)
        return rates.quotas(now)

    # Asking the store.

    def ask(self, now: float, waiting: int) -> bool:
        """Request permits for *waiting* calls; tell whether the store may give any."""
        if not self._store_is_up or not self._terms.rates or now < self._paused_until:
            return False
        if waiting and not self.is_asking:
            self._ask_for(waiting, now)
        return self.is_asking or now >= self._next

    def _ask_for(self, waiting: int, now: float) -> None:
        """Request permits for *waiting* calls, as soon as there can be any."""
        want, due = waiting, self._next
        if self._degraded is not None:  # no more than the degraded limiter could use
            due = max(due, now + self._degraded.wait(now, 1))
            while want > 1 and self._degraded.wait(now, want) > 0:
                want //= 2
        want -= self._leases.count(now)
        if want <= 0:
            return  # they are at hand, and not usable yet
        if now < due:
            self._ask_at(due, now, waiting)
            return
        ahead = self._leases.ask_ahead_count(now)
        self._request(want if self._is_contested else want + ahead)

    def _ask_ahead(self, now: float) -> None:
        """Request permits for calls that will come, if it goes on like this."""
        if not self.is_asking and not self._is_contested and now >= self._next:
            want = self._leases.ask_ahead_count(now)
            if want:
                self._request(want)

    def _request(self, want: int) -> None:
        """Ask the store for *want* permits; for none, to learn of a pause only."""
        self.is_asking = True
        epoch = self._epoch

        def answer(numbers: list[int], sent: float) -> None:
            self.is_asking = False
            if epoch == self._epoch:
                self._receive(want, numbers, sent)
            self.hear_pause(numbers[2] / 1e6)
            self._answered()

        self._commands.take(want, self._terms, answer)

    def _receive(self, wanted: int, numbers: list[int], sent: float) -> None:
        given, next_in, _, has_rival, *first_in = numbers
        now = self._clock.monotonic()
        self._put(given, first_in, sent + self._terms.life, now)
        if given:
            self._commands.link.check_round_trip(self._terms.life)
        self._is_contested = given < wanted
        self._next = now + next_in / 1e6
        if self._is_contested:
            pace = self._pace(rivals=self._commands.link.instances - 1 if has_rival else 0)
            self._next = max(self._next, now + pace)
            if has_rival:
                self._next += self._courtesy(pace, given)

    def _put(self, given: int, first_in: list[int], lapses: float, now: float) -> None:
        """Keep what the store gave, each permit until its due time.

        *first_in*: for each rate, the microseconds until the first one may be used.
        """
        grains = 0
        count = 0
        for position in range(given):
            wait = max(
                first / 1e6 + position * interval
                for first, interval in zip(first_in, self._terms.intervals, strict=True)
            )
            opens = max(ceil(wait / _GRAIN), 0)
            if opens > grains:
                self._leases.put(count, lapses, now, now + grains * _GRAIN if grains else now)
                grains, count = opens, 0
            count += 1
        self._leases.put(count, lapses, now, now + grains * _GRAIN if grains else now)

    def _pace(self, rivals: int) -> float:
        """Return the seconds until it is worth while to ask again."""
        return min(_PACE * (1 + rivals), self._terms.life / 4)

    def _courtesy(self, pace: float, given: int) -> float:
        """Return the seconds by which to ask later than possible, where instances compete.

        All know when the next permit comes, and else the instance nearest to the store would get
        every one. An instance that has just got permits lets the others go first.
        """
        most = min(max(self._terms.interval, pace), self._terms.life / 4)
        return most * (self._clock.roll() + (1 if given else 0)) / 2

    # Pauses and changes.

    def change(self, settings: ThrottleSettings, now: float, closed_until: float) -> None:
        """Apply other limits from now on, and a pause. The store knows what is left of them."""
        if settings != self._settings:
            self._settings = settings
            self._terms = lease_terms(settings, self._permit_life)
            self._forget()
            self._leases = LeasedPermits(self._terms.life, self._terms.interval, now)
            self._paused_until = min(self._paused_until, max(closed_until, now))
            if self._degraded is not None:
                self._degraded = self._new_degraded(now)
        if closed_until > self._paused_until:
            self._close_until(now, closed_until)
            if self._store_is_up:
                self._tell_pause(now)

    def _close_until(self, now: float, until: float) -> None:
        self._paused_until = until
        self._forget()
        if self._degraded is not None:
            self._degraded.close_until(now, until)

    def _tell_pause(self, now: float) -> None:
        def answer(numbers: list[int], sent: float) -> None:  # noqa: ARG001 - no matter when
            self.hear_pause(numbers[2] / 1e6)

        self._commands.pause(self._paused_until - now, self._terms, answer)

    def hear_pause(self, seconds: float) -> None:
        """Pause for *seconds*, as the upstream has told another instance."""
        now = self._clock.monotonic()
        until = now + min(seconds, self._terms.longest_pause)
        if seconds and until > self._paused_until + _SAME_PAUSE:
            self._close_until(now, until)
            self._listener.permits_paused(until)

    def missed(self) -> None:
        """Ask the store whether there is a pause whose message we missed."""
        if self._terms.longest_pause > 0 and self._store_is_up and not self.is_asking:
            self._request(0)

    def _forget(self) -> None:
        """Drop the permits at hand and on their way; the store may be asked again."""
        self._leases.drop()
        self._epoch += 1
        self._next = 0.0
        self._is_contested = False

    # The store comes and goes.

    def went_down(self, now: float) -> None:
        """Use a degraded limiter from now on: the store is down."""
        self._forget()
        self.is_asking = False
        self._do_without_store(now)
        self._listener.permits_changed()

    def _do_without_store(self, now: float) -> None:
        self._store_is_up = False
        if not self._sent_alone:
            self._alone_since = now
        if self._degraded is None:
            self._degraded = self._new_degraded(now)

    def _new_degraded(self, now: float) -> LocalRateLimiter:
        instances = self._commands.link.instances
        degraded = degraded_rates(self._settings, instances, now, self._terms.life)
        if now < self._paused_until:
            degraded.close_until(now, self._paused_until)
        return degraded

    def came_up(self, now: float) -> None:
        """Use the store again, and report to it what was sent without it."""
        self._store_is_up = True
        if self._settings.on_store_error is not ThrottleWithoutStore.LOCAL:
            self._degraded = None
            self._sent_alone = 0
        self._report_sent(now)
        if now < self._paused_until:
            self._tell_pause(now)
        self._listener.permits_changed()

    def _report_sent(self, now: float) -> None:
        reported = self._sent_alone
        if not reported or not self._settings.rates:
            self._sent_alone = 0
            return

        def answer(numbers: list[int], sent: float) -> None:  # noqa: ARG001 - it knows now
            self._sent_alone -= reported

        alone_for, last_ago = now - self._alone_since, now - self._last_alone
        self._commands.report_sent(reported, alone_for, last_ago, self._terms, answer)

    def trust_store(self) -> None:
        """Drop the degraded limiter: by now all instances know that the store is up."""
        if self._store_is_up and self._degraded is not None:
            self._degraded = None
            self._listener.permits_changed()
