"""The tables of the file: deliveries and dead letters, which are the rows of one table.

A row is a *delivery* if it was accepted (``accepted`` is not 0), and a *dead letter* if it failed
and its route keeps those (``is_letter``). A request that failed while its client waited is a dead
letter alone; a delivery that failed is both, under one id.

Dead letters are in the order of ``filed``, which is given when they become one: the ids of
deliveries have no order. The columns ``accepted``, ``gives_up``, ``due`` and ``last_try`` are times
of the file's own clock (``stores/deliveries/file_clock.py``), all others are dates.
"""

from proxy.stores.sqlite_file.columns import Columns
from proxy.stores.sqlite_file.opening import Layout

NONSENSE = "what is stored of a letter is invalid"
SUMMARY = Columns(
    "id TEXT, created REAL, expires REAL, route TEXT, method TEXT, target BLOB, request_id TEXT,"
    " error TEXT, category TEXT, why TEXT, used INTEGER, allowed INTEGER, may_have_run INTEGER,"
    " replay_state TEXT, replays INTEGER, size INTEGER, missing TEXT, caller TEXT,"
    " credentials TEXT",
    NONSENSE,
)
REST = Columns(
    "peer TEXT, scheme TEXT, record TEXT, fallback TEXT, holder TEXT, headers TEXT, dropped TEXT",
    NONSENSE,
)
_OWN = Columns("owner TEXT, weight INTEGER", NONSENSE)
"""For the table alone: which process sends or replays it, and the bytes that it takes."""
_ADDED = {
    "state TEXT": "'failed'",
    "is_letter INTEGER": "1",
    "filed TEXT": "''",
    "upstream TEXT": "''",
    "fingerprint BLOB": "x''",
    "scope TEXT": "''",
    "accepted REAL": "0.0",
    "gives_up REAL": "0.0",
    "give_up_after REAL": "0.0",
    "due REAL": "0.0",
    "attempts INTEGER": "0",
    "tries INTEGER": "0",
    "last_try REAL": "0.0",
    "ran_at TEXT": "'[]'",
    "sending_to TEXT": "'[]'",
    "has_key INTEGER": "0",
    "added_key TEXT": "''",
    "deferred TEXT": "''",
    "ttl REAL": "0.0",
    "letter_ttl REAL": "0.0",
    "wiped TEXT": "'[]'",
    "response_status INTEGER": "0",
    "ended REAL": "0.0",
    "version INTEGER": "0",
}
"""The columns of deliveries, with what they are in a row that never was one."""
ALL = SUMMARY + _OWN + REST + Columns(", ".join(_ADDED), NONSENSE)

OPEN = "(state = 'waiting' OR state = 'sending' OR state = 'retrying')"
PENDING = "state IN ('waiting', 'retrying')"
ENDED = "(state = 'delivered' OR state = 'failed' OR state = 'cancelled')"
"""Conditions of partial indexes. SQLite uses such an index only where a query says the same. For
``IN`` and three values it builds a table whenever a row changes, which takes ten times as long."""

_HOLDS = "({row}.state != 'delivered' AND {row}.state != 'cancelled')"
"""Whether a delivery takes room: until it is done with, or its dead letter is."""

# Whether a dead letter may be replayed without force, for the new row of a change and the old.
_NEW = "(NEW.missing = '' AND NOT NEW.may_have_run AND NEW.replay_state = 'waiting')"
_OLD = "(OLD.missing = '' AND NOT OLD.may_have_run AND OLD.replay_state = 'waiting')"

_COUNT_LETTER = f"""
    INSERT INTO totals (route, letters, bytes, replayable) VALUES (NEW.route, 1, NEW.weight, {_NEW})
    ON CONFLICT (route) DO UPDATE SET letters = letters + 1, bytes = bytes + NEW.weight,
        replayable = replayable + {_NEW};
    INSERT INTO holders (holder, letters, bytes) VALUES (NEW.holder, 1, NEW.weight)
    ON CONFLICT (holder) DO UPDATE SET letters = letters + 1, bytes = bytes + NEW.weight;
"""  # noqa: S608 - constants
_DISCOUNT_LETTER = f"""
    UPDATE totals SET letters = letters - 1, bytes = bytes - OLD.weight,
        replayable = replayable - {_OLD} WHERE route = OLD.route;
    DELETE FROM totals WHERE route = OLD.route AND letters = 0;
    UPDATE holders SET letters = letters - 1, bytes = bytes - OLD.weight WHERE holder = OLD.holder;
    DELETE FROM holders WHERE holder = OLD.holder AND letters = 0;
"""  # noqa: S608 - constants
_COUNT_DELIVERY = """
    INSERT INTO tallies (route, state, entries, bytes) VALUES (NEW.route, NEW.state, 1, NEW.weight)
    ON CONFLICT (route, state) DO UPDATE SET entries = entries + 1, bytes = bytes + NEW.weight;
"""
_DISCOUNT_DELIVERY = """
    UPDATE tallies SET entries = entries - 1, bytes = bytes - OLD.weight
        WHERE route = OLD.route AND state = OLD.state;
"""
_DISCOUNT_CALLER = """
    UPDATE callers SET entries = entries - 1, bytes = bytes - OLD.weight WHERE caller = OLD.holder;
    DELETE FROM callers WHERE caller = OLD.holder AND entries = 0;
"""

_INDEXES = (
    "CREATE INDEX letters_by_route ON deliveries (route, filed) WHERE is_letter",
    "CREATE INDEX letters_in_order ON deliveries (filed) WHERE is_letter",
    "CREATE INDEX letters_at_work ON deliveries (replay_state) WHERE replay_state = 'replaying'",
    f"CREATE INDEX deliveries_by_expiry ON deliveries (expires) WHERE {ENDED}",
    f"CREATE INDEX deliveries_due ON deliveries (route, due) WHERE {PENDING}",
    f"CREATE INDEX deliveries_giving_up ON deliveries (gives_up) WHERE {PENDING}",
    f"CREATE INDEX deliveries_open ON deliveries (route, accepted, id) WHERE {OPEN}",
    "CREATE INDEX deliveries_sending ON deliveries (owner) WHERE state = 'sending'",
    # A key has one open delivery, whichever processes accept it.
    f"CREATE UNIQUE INDEX deliveries_by_key ON deliveries (record) WHERE record != '' AND {OPEN}",
    """
    CREATE INDEX deliveries_of_record ON deliveries (record, accepted)
    WHERE record != '' AND accepted > 0
    """,
    "CREATE INDEX deliveries_in_order ON deliveries (accepted, id) WHERE accepted > 0",
)
_NEW_TABLES = (
    # Apart from the rest, for they are wiped at the end: no page has them beside anything else.
    "CREATE TABLE credentials (delivery TEXT PRIMARY KEY, fields TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE responses (delivery TEXT PRIMARY KEY, headers TEXT NOT NULL, body BLOB)",
    # Ids of deliveries that were forgotten, for a while: who asks is told so.
    """
    CREATE TABLE gone (
        id TEXT PRIMARY KEY,
        filed TEXT NOT NULL,
        until REAL NOT NULL
    ) WITHOUT ROWID
    """,
    "CREATE INDEX gone_by_time ON gone (until)",
    # The counts of deliveries, by route and state, and of those that take room by caller.
    """
    CREATE TABLE tallies (
        route TEXT NOT NULL,
        state TEXT NOT NULL,
        entries INTEGER NOT NULL,
        bytes INTEGER NOT NULL,
        PRIMARY KEY (route, state)
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE callers (
        caller TEXT PRIMARY KEY,
        entries INTEGER NOT NULL,
        bytes INTEGER NOT NULL
    ) WITHOUT ROWID
    """,
    # Why what is due on a route is not sent now.
    """
    CREATE TABLE deferrals (
        route TEXT PRIMARY KEY,
        reason TEXT NOT NULL,
        until REAL NOT NULL
    ) WITHOUT ROWID
    """,
    "CREATE TABLE clock (boot TEXT NOT NULL, offset REAL NOT NULL, correction REAL NOT NULL)",
)
_TRIGGERS = (
    f"""
    CREATE TRIGGER letter_came AFTER INSERT ON deliveries WHEN NEW.is_letter
    BEGIN {_COUNT_LETTER} END
    """,
    f"""
    CREATE TRIGGER letter_filed AFTER UPDATE OF is_letter ON deliveries
    WHEN NEW.is_letter AND NOT OLD.is_letter
    BEGIN {_COUNT_LETTER} END
    """,
    f"""
    CREATE TRIGGER letter_changed AFTER UPDATE OF replay_state, may_have_run ON deliveries
    WHEN NEW.is_letter AND OLD.is_letter BEGIN
        UPDATE totals SET replayable = replayable + {_NEW} - {_OLD} WHERE route = NEW.route;
    END
    """,  # noqa: S608 - constants
    f"""
    CREATE TRIGGER letter_unfiled AFTER UPDATE OF is_letter ON deliveries
    WHEN OLD.is_letter AND NOT NEW.is_letter
    BEGIN {_DISCOUNT_LETTER} END
    """,
    f"""
    CREATE TRIGGER letter_went AFTER DELETE ON deliveries WHEN OLD.is_letter
    BEGIN {_DISCOUNT_LETTER} END
    """,
    f"""
    CREATE TRIGGER delivery_came AFTER INSERT ON deliveries WHEN NEW.accepted > 0 BEGIN
        {_COUNT_DELIVERY}
        INSERT INTO callers (caller, entries, bytes) VALUES (NEW.holder, 1, NEW.weight)
        ON CONFLICT (caller) DO UPDATE SET entries = entries + 1, bytes = bytes + NEW.weight;
    END
    """,  # noqa: S608 - constants
    f"""
    CREATE TRIGGER delivery_changed AFTER UPDATE OF state, weight ON deliveries
    WHEN NEW.accepted > 0 AND (NEW.state != OLD.state OR NEW.weight != OLD.weight)
    BEGIN {_DISCOUNT_DELIVERY} {_COUNT_DELIVERY} END
    """,
    # The weight of a delivery changes only with its end.
    f"""
    CREATE TRIGGER delivery_ended AFTER UPDATE OF state ON deliveries
    WHEN NEW.accepted > 0 AND {_HOLDS.format(row="OLD")} AND NOT {_HOLDS.format(row="NEW")}
    BEGIN {_DISCOUNT_CALLER} END
    """,
    f"""
    CREATE TRIGGER delivery_went AFTER DELETE ON deliveries WHEN OLD.accepted > 0
    BEGIN {_DISCOUNT_DELIVERY} END
    """,
    f"""
    CREATE TRIGGER held_delivery_went AFTER DELETE ON deliveries
    WHEN OLD.accepted > 0 AND {_HOLDS.format(row="OLD")}
    BEGIN {_DISCOUNT_CALLER} END
    """,
    """
    CREATE TRIGGER row_went AFTER DELETE ON deliveries BEGIN
        DELETE FROM runs WHERE delivery = OLD.id;
        DELETE FROM bodies WHERE delivery = OLD.id;
        DELETE FROM credentials WHERE delivery = OLD.id;
        DELETE FROM responses WHERE delivery = OLD.id;
    END
    """,
)

LAYOUT = Layout(
    application=0x486F6C4C,  # "HolL"
    format=3,
    content="the deliveries and the dead letters in it",
    waits_for_disk=True,
    can_shrink=True,
    statements=(
        f"CREATE TABLE deliveries ({ALL.definition}, PRIMARY KEY (id))",
        # Apart from the rest, which is written anew whenever the state changes.
        "CREATE TABLE bodies (delivery TEXT PRIMARY KEY, body BLOB NOT NULL)",
        # Append-only: each try, and each replay, has a row of its own.
        """
        CREATE TABLE runs (
            delivery TEXT NOT NULL,
            number INTEGER NOT NULL,
            time REAL NOT NULL,
            result TEXT NOT NULL,
            attempts TEXT NOT NULL,
            may_have_run INTEGER NOT NULL DEFAULT 1,
            urls TEXT NOT NULL DEFAULT '[]',
            PRIMARY KEY (delivery, number)
        )
        """,
        # The counts are asked for at each dead letter and each scrape: counting would be too slow.
        """
        CREATE TABLE totals (
            route TEXT PRIMARY KEY,
            letters INTEGER NOT NULL,
            bytes INTEGER NOT NULL,
            replayable INTEGER NOT NULL
        )
        """,
        # The same for how much each holder uses.
        """
        CREATE TABLE holders (
            holder TEXT PRIMARY KEY,
            letters INTEGER NOT NULL,
            bytes INTEGER NOT NULL
        )
        """,
        # The key of the digests of callers: without it, no one can try out credentials.
        "CREATE TABLE secrets (name TEXT PRIMARY KEY, secret BLOB NOT NULL)",
        "INSERT INTO secrets VALUES ('callers', randomblob(32))",
        *_NEW_TABLES,
        *_INDEXES,
        *_TRIGGERS,
    ),
    # Format 2 had dead letters alone, in a table of that name.
    from_last_format=(
        "DROP TRIGGER letter_came",
        "DROP TRIGGER letter_changed",
        "DROP TRIGGER letter_went",
        "DROP INDEX letters_by_route",
        "DROP INDEX letters_by_expiry",
        "DROP INDEX letters_at_work",
        "ALTER TABLE letters RENAME TO deliveries",
        "ALTER TABLE deliveries RENAME COLUMN state TO replay_state",
        *(
            f"ALTER TABLE deliveries ADD COLUMN {column} NOT NULL DEFAULT {value}"
            for column, value in _ADDED.items()
        ),
        "UPDATE deliveries SET filed = id",
        "ALTER TABLE bodies RENAME COLUMN letter TO delivery",
        "ALTER TABLE runs RENAME COLUMN letter TO delivery",
        "ALTER TABLE runs ADD COLUMN may_have_run INTEGER NOT NULL DEFAULT 1",
        "ALTER TABLE runs ADD COLUMN urls TEXT NOT NULL DEFAULT '[]'",
        *_NEW_TABLES,
        *_INDEXES,
        *_TRIGGERS,
    ),
)
