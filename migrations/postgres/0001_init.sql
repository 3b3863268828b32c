-- The schema of the PostgreSQL store. Append-only: released files never change; each change is a new file.
-- Times are epoch seconds, except in columns whose names end in another unit.
-- Texts are ordered bytewise, as in the embedded store and in the program.

-- Installation facts: the installation id, the wrapped data keys, the schema version and others.
CREATE TABLE meta (
    name  TEXT COLLATE "C" PRIMARY KEY,
    value BYTEA NOT NULL
);

-- The existing mounts, each with the last number of its revocation sequence. Mount 0 is the server itself.
CREATE TABLE mount (
    id      BIGINT PRIMARY KEY,
    rev_seq BIGINT NOT NULL DEFAULT 0
);
INSERT INTO mount (id) VALUES (0);

-- Dropped mounts whose rows in large tables (such as certificates) are still being removed in small steps.
CREATE TABLE dropped_mount (
    id BIGINT PRIMARY KEY
);

-- Configuration documents; bodies are sealed.
CREATE TABLE document (
    mount   BIGINT NOT NULL REFERENCES mount (id),
    kind    TEXT COLLATE "C" NOT NULL,
    name    TEXT COLLATE "C" NOT NULL,
    version BIGINT NOT NULL,
    body    BYTEA NOT NULL,
    PRIMARY KEY (mount, kind, name)
);

-- Issued certificates. Only two indexes, because each further index slows down issuing.
CREATE TABLE certificate (
    mount       BIGINT NOT NULL,
    serial      BYTEA NOT NULL,
    issuer      TEXT COLLATE "C" NOT NULL,
    role        TEXT COLLATE "C",
    common_name TEXT COLLATE "C",
    not_before  BIGINT NOT NULL,
    not_after   BIGINT NOT NULL,
    issued_at   BIGINT NOT NULL,
    requester   TEXT COLLATE "C" NOT NULL,
    der         BYTEA NOT NULL
);
CREATE UNIQUE INDEX certificate_serial ON certificate (mount, serial);
CREATE INDEX certificate_end ON certificate (mount, not_after);

CREATE TABLE revocation (
    mount             BIGINT NOT NULL,
    serial            BYTEA NOT NULL,
    seq               BIGINT NOT NULL,
    issuer            TEXT COLLATE "C" NOT NULL,
    revoked_at_micros BIGINT NOT NULL,
    not_after         BIGINT NOT NULL,
    reason            BIGINT,
    invalidity_date   BIGINT,
    PRIMARY KEY (mount, serial)
);
CREATE UNIQUE INDEX revocation_seq ON revocation (mount, seq);

-- The last published CRL of each group of issuers, without its body, which is rebuilt from the revocations.
CREATE TABLE crl (
    mount       BIGINT NOT NULL REFERENCES mount (id),
    grp         TEXT COLLATE "C" NOT NULL,
    number      BIGINT NOT NULL,
    covers      BIGINT NOT NULL,
    this_update BIGINT NOT NULL,
    next_update BIGINT NOT NULL,
    signature   BYTEA NOT NULL,
    PRIMARY KEY (mount, grp)
);

-- Exact numbers of rows per mount, as the sum of its counter rows. On PostgreSQL a mount has up to 64 counter rows, and
-- each node updates one of them (`node` is its number), so that nodes rarely wait for each other. SQLite has one.
CREATE TABLE counter (
    mount        BIGINT NOT NULL REFERENCES mount (id),
    node         BIGINT NOT NULL,
    certificates BIGINT NOT NULL,
    revocations  BIGINT NOT NULL,
    PRIMARY KEY (mount, node)
);

-- Tokens, looked up only by the SHA-256 hash of the token or of its accessor; bodies are sealed.
CREATE TABLE token (
    hash              BYTEA PRIMARY KEY,
    accessor_hash     BYTEA NOT NULL UNIQUE,
    parent            BYTEA,
    expires_at_micros BIGINT,
    uses              BIGINT,
    body              BYTEA NOT NULL
);
CREATE INDEX token_parent ON token (parent) WHERE parent IS NOT NULL;
CREATE INDEX token_end ON token (expires_at_micros) WHERE expires_at_micros IS NOT NULL;
