-- Records that belong to a certificate: its lease, and the metadata that a caller attached.

-- Leases of certificates, which expire together with the certificate. A lease with ending = 1 is being revoked:
-- requests no longer see it, and its certificate is not revoked yet.
CREATE TABLE lease (
    id         TEXT    PRIMARY KEY,
    mount      INTEGER NOT NULL,
    serial     BLOB    NOT NULL,
    token      BLOB    NOT NULL,
    issued_at  INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    ending     INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE UNIQUE INDEX lease_serial ON lease (mount, serial);
CREATE INDEX lease_end ON lease (expires_at);
CREATE INDEX lease_token ON lease (token) WHERE ending = 0;
CREATE INDEX lease_ending ON lease (id) WHERE ending = 1;

-- Ended tokens whose leases are not yet marked as ending.
CREATE TABLE ended_token (
    hash BLOB PRIMARY KEY
) STRICT;

-- Metadata that callers attached to certificates; bodies are sealed.
CREATE TABLE certificate_metadata (
    mount     INTEGER NOT NULL,
    serial    BLOB    NOT NULL,
    not_after INTEGER NOT NULL,
    body      BLOB    NOT NULL,
    PRIMARY KEY (mount, serial)
) STRICT;
CREATE INDEX certificate_metadata_end ON certificate_metadata (mount, not_after);
