-- The schema of the embedded store. Append-only: released files never change; each change is a new file.
-- Times are epoch seconds, except in columns whose names end in another unit.

-- Installation facts: the installation id, the wrapped data keys, the schema version and others.
CREATE TABLE meta (
    name  TEXT PRIMARY KEY,
    value BLOB NOT NULL
) STRICT;

-- The existing mounts, each with the last number of its revocation sequence. Mount 0 is the server itself.
CREATE TABLE mount (
    id      INTEGER PRIMARY KEY,
    rev_seq INTEGER NOT NULL DEFAULT 0
) STRICT;
INSERT INTO mount (id) VALUES (0);

-- Dropped mounts whose rows in large tables (such as certificates) are still being removed in small steps.
CREATE TABLE dropped_mount (
    id INTEGER PRIMARY KEY
) STRICT;

-- Configuration documents; bodies are sealed.
CREATE TABLE document (
    mount   INTEGER NOT NULL REFERENCES mount (id),
    kind    TEXT    NOT NULL,
    name    TEXT    NOT NULL,
    version INTEGER NOT NULL,
    body    BLOB    NOT NULL,
    PRIMARY KEY (mount, kind, name)
) STRICT;

-- Issued certificates. Only two indexes, because each further index slows down issuing. A rowid table:
-- with random serials as the clustering key, each insert would write twice as many pages.
CREATE TABLE certificate (
    mount       INTEGER NOT NULL,
    serial      BLOB    NOT NULL,
    issuer      TEXT    NOT NULL,
    role        TEXT,
    common_name TEXT,
    not_before  INTEGER NOT NULL,
    not_after   INTEGER NOT NULL,
    issued_at   INTEGER NOT NULL,
    requester   TEXT    NOT NULL,
    der         BLOB    NOT NULL
) STRICT;
CREATE UNIQUE INDEX certificate_serial ON certificate (mount, serial);
CREATE INDEX certificate_end ON certificate (mount, not_after);

CREATE TABLE revocation (
    mount             INTEGER NOT NULL,
    serial            BLOB    NOT NULL,
    seq               INTEGER NOT NULL,
    issuer            TEXT    NOT NULL,
    revoked_at_micros INTEGER NOT NULL,
    not_after         INTEGER NOT NULL,
    reason            INTEGER,
    invalidity_date   INTEGER,
    PRIMARY KEY (mount, serial)
) STRICT;
CREATE UNIQUE INDEX revocation_seq ON revocation (mount, seq);

-- The last published CRL of each group of issuers, without its body, which is rebuilt from the revocations.
CREATE TABLE crl (
    mount       INTEGER NOT NULL REFERENCES mount (id),
    grp         TEXT    NOT NULL,
    number      INTEGER NOT NULL,
    covers      INTEGER NOT NULL,
    this_update INTEGER NOT NULL,
    next_update INTEGER NOT NULL,
    signature   BLOB    NOT NULL,
    PRIMARY KEY (mount, grp)
) STRICT;

-- Exact numbers of rows per mount, as the sum of its counter rows. On PostgreSQL a mount has up to 64 counter rows, and
-- each node updates one of them (`node` is its number), so that nodes rarely wait for each other. SQLite has one.
CREATE TABLE counter (
    mount        INTEGER NOT NULL REFERENCES mount (id),
    node         INTEGER NOT NULL,
    certificates INTEGER NOT NULL,
    revocations  INTEGER NOT NULL,
    PRIMARY KEY (mount, node)
) STRICT;

-- Tokens, looked up only by the SHA-256 hash of the token or of its accessor; bodies are sealed.
CREATE TABLE token (
    hash              BLOB PRIMARY KEY,
    accessor_hash     BLOB NOT NULL UNIQUE,
    parent            BLOB,
    expires_at_micros INTEGER,
    uses              INTEGER,
    body              BLOB NOT NULL
) STRICT;
CREATE INDEX token_parent ON token (parent) WHERE parent IS NOT NULL;
CREATE INDEX token_end ON token (expires_at_micros) WHERE expires_at_micros IS NOT NULL;
