-- Secret ids of the authentication method approle, found only by a keyed hash or by their accessor; bodies are
-- sealed. One whose uses are counted goes with its last use, one that has ended is swept.
CREATE TABLE secret_id (
    mount             BIGINT NOT NULL,
    hash              BYTEA NOT NULL,
    role              BIGINT NOT NULL,
    accessor          TEXT COLLATE "C" NOT NULL,
    expires_at_micros BIGINT,
    uses              BIGINT,
    updated_at_micros BIGINT NOT NULL,
    body              BYTEA NOT NULL,
    PRIMARY KEY (mount, hash)
);
CREATE UNIQUE INDEX secret_id_accessor ON secret_id (mount, role, accessor);
CREATE INDEX secret_id_end ON secret_id (expires_at_micros) WHERE expires_at_micros IS NOT NULL;

-- Roles that have ended and whose secret ids are still to be swept. They stay for a while after that, for nodes that
-- have not heard of the end yet.
CREATE TABLE ended_role (
    mount           BIGINT NOT NULL,
    role            BIGINT NOT NULL,
    ended_at_micros BIGINT NOT NULL,
    PRIMARY KEY (mount, role)
);
