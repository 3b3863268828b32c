-- Secret ids of the authentication method approle, found only by a keyed hash or by their accessor; bodies are
-- sealed. One whose uses are counted goes with its last use, one that has ended is swept.
CREATE TABLE secret_id (
    mount             INTEGER NOT NULL,
    hash              BLOB NOT NULL,
    role              INTEGER NOT NULL,
    accessor          TEXT NOT NULL,
    expires_at_micros INTEGER,
    uses              INTEGER,
    updated_at_micros INTEGER NOT NULL,
    body              BLOB NOT NULL,
    PRIMARY KEY (mount, hash)
) STRICT;
CREATE UNIQUE INDEX secret_id_accessor ON secret_id (mount, role, accessor);
CREATE INDEX secret_id_end ON secret_id (expires_at_micros) WHERE expires_at_micros IS NOT NULL;

-- Roles that have ended and whose secret ids are still to be swept. They stay for a while after that, for nodes that
-- have not heard of the end yet.
CREATE TABLE ended_role (
    mount           INTEGER NOT NULL,
    role            INTEGER NOT NULL,
    ended_at_micros INTEGER NOT NULL,
    PRIMARY KEY (mount, role)
) STRICT;
