-- A file of format 2, as the version before deliveries wrote it: two dead letters, one of them
-- being replayed by a process that is dead.
PRAGMA auto_vacuum = INCREMENTAL;
BEGIN TRANSACTION;
CREATE TABLE bodies (letter TEXT PRIMARY KEY, body BLOB NOT NULL);
INSERT INTO "bodies" VALUES('18b2f3c4d5e6f7a8b9c0',X'626F6479');
INSERT INTO "bodies" VALUES('18b2f3c4d5e7f7a8b9c1',X'626F6479');
CREATE TABLE holders (
            holder TEXT PRIMARY KEY,
            letters INTEGER NOT NULL,
            bytes INTEGER NOT NULL
        );
INSERT INTO "holders" VALUES('',2,120);
CREATE TABLE letters (id TEXT NOT NULL,
            created REAL NOT NULL,
            expires REAL NOT NULL,
            route TEXT NOT NULL,
            method TEXT NOT NULL,
            target BLOB NOT NULL,
            request_id TEXT NOT NULL,
            error TEXT NOT NULL,
            category TEXT NOT NULL,
            why TEXT NOT NULL,
            used INTEGER NOT NULL,
            allowed INTEGER NOT NULL,
            may_have_run INTEGER NOT NULL,
            state TEXT NOT NULL,
            replays INTEGER NOT NULL,
            size INTEGER NOT NULL,
            missing TEXT NOT NULL,
            caller TEXT NOT NULL,
            credentials TEXT NOT NULL,
            owner TEXT NOT NULL,
            weight INTEGER NOT NULL,
            peer TEXT NOT NULL,
            scheme TEXT NOT NULL,
            record TEXT NOT NULL,
            fallback TEXT NOT NULL,
            holder TEXT NOT NULL,
            headers TEXT NOT NULL,
            dropped TEXT NOT NULL, PRIMARY KEY (id));
INSERT INTO "letters" VALUES('18b2f3c4d5e6f7a8b9c0',1790000000.0,1900000000.0,'charges','POST',X'2F636861726765733F613D62','request-1','503','transient','attempts_exhausted',1,3,0,'waiting',0,4,'','','[]','',60,'192.0.2.7','http','','','','[["A", "1"]]','["Authorization"]');
INSERT INTO "letters" VALUES('18b2f3c4d5e7f7a8b9c1',1790000000.0,1900000000.0,'charges','POST',X'2F636861726765733F613D62','request-2','503','transient','attempts_exhausted',1,3,0,'replaying',0,4,'','','[]','dead-1 t',60,'192.0.2.7','http','','','','[["A", "1"]]','["Authorization"]');
CREATE TABLE runs (
            letter TEXT NOT NULL,
            number INTEGER NOT NULL,
            time REAL NOT NULL,
            result TEXT NOT NULL,
            attempts TEXT NOT NULL,
            PRIMARY KEY (letter, number)
        );
INSERT INTO "runs" VALUES('18b2f3c4d5e6f7a8b9c0',0,1790000000.0,'failed','[{"n": 1, "outcome": "timeout"}]');
INSERT INTO "runs" VALUES('18b2f3c4d5e7f7a8b9c1',0,1790000000.0,'failed','[{"n": 1, "outcome": "timeout"}]');
CREATE TABLE secrets (name TEXT PRIMARY KEY, secret BLOB NOT NULL);
INSERT INTO "secrets" VALUES('callers',X'0000000000000000000000000000000000000000000000000000000000000000');
CREATE TABLE totals (
            route TEXT PRIMARY KEY,
            letters INTEGER NOT NULL,
            bytes INTEGER NOT NULL,
            replayable INTEGER NOT NULL
        );
INSERT INTO "totals" VALUES('charges',2,120,1);
CREATE INDEX letters_by_route ON letters (route, id);
CREATE INDEX letters_by_expiry ON letters (expires);
CREATE INDEX letters_at_work ON letters (state) WHERE state = 'replaying';
CREATE TRIGGER letter_came AFTER INSERT ON letters BEGIN
            INSERT INTO totals (route, letters, bytes, replayable)
            VALUES (NEW.route, 1, NEW.weight, (NEW.missing = '' AND NOT NEW.may_have_run AND NEW.state = 'waiting'))
            ON CONFLICT (route) DO UPDATE SET letters = letters + 1, bytes = bytes + NEW.weight,
                replayable = replayable + (NEW.missing = '' AND NOT NEW.may_have_run AND NEW.state = 'waiting');
            INSERT INTO holders (holder, letters, bytes) VALUES (NEW.holder, 1, NEW.weight)
            ON CONFLICT (holder) DO UPDATE SET letters = letters + 1, bytes = bytes + NEW.weight;
        END;
CREATE TRIGGER letter_changed AFTER UPDATE ON letters BEGIN
            UPDATE totals SET replayable = replayable + (NEW.missing = '' AND NOT NEW.may_have_run AND NEW.state = 'waiting') - (OLD.missing = '' AND NOT OLD.may_have_run AND OLD.state = 'waiting') WHERE route = NEW.route;
        END;
CREATE TRIGGER letter_went AFTER DELETE ON letters BEGIN
            UPDATE totals SET letters = letters - 1, bytes = bytes - OLD.weight,
                replayable = replayable - (OLD.missing = '' AND NOT OLD.may_have_run AND OLD.state = 'waiting') WHERE route = OLD.route;
            DELETE FROM totals WHERE route = OLD.route AND letters = 0;
            UPDATE holders SET letters = letters - 1, bytes = bytes - OLD.weight
                WHERE holder = OLD.holder;
            DELETE FROM holders WHERE holder = OLD.holder AND letters = 0;
            DELETE FROM runs WHERE letter = OLD.id;
            DELETE FROM bodies WHERE letter = OLD.id;
        END;
COMMIT;
PRAGMA application_id = 1215261772;
PRAGMA user_version = 2;
