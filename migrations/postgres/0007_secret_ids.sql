-- Secret ids of the authentication method approle, looked up only by a keyed hash or by their accessor; bodies are
-- sealed. A secret id with limited uses is removed with its last use, an expired one by a sweep.
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

-- Deleted roles whose secret ids are not removed yet. A row stays for some minutes after that, for nodes that do
-- not know of the deletion yet.
CREATE TABLE ended_role (
    mount           BIGINT NOT NULL,
    role            BIGINT NOT NULL,
    ended_at_micros BIGINT NOT NULL,
    PRIMARY KEY (mount, role)
);
