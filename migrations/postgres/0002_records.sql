-- Records that belong to a certificate: its lease, and the metadata that a caller attached.

-- Leases of certificates, which expire together with the certificate. A lease with ending = 1 is being revoked:
-- requests no longer see it, and its certificate is not revoked yet.
CREATE TABLE lease (
    id         TEXT COLLATE "C" PRIMARY KEY,
    mount      BIGINT NOT NULL,
    serial     BYTEA NOT NULL,
    token      BYTEA NOT NULL,
    issued_at  BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    ending     BIGINT NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX lease_serial ON lease (mount, serial);
CREATE INDEX lease_end ON lease (expires_at);
CREATE INDEX lease_token ON lease (token) WHERE ending = 0;
CREATE INDEX lease_ending ON lease (id) WHERE ending = 1;

-- Ended tokens whose leases are not yet marked as ending.
CREATE TABLE ended_token (
    hash BYTEA PRIMARY KEY
);

-- Metadata that callers attached to certificates; bodies are sealed.
CREATE TABLE certificate_metadata (
    mount     BIGINT NOT NULL,
    serial    BYTEA NOT NULL,
    not_after BIGINT NOT NULL,
    body      BYTEA NOT NULL,
    PRIMARY KEY (mount, serial)
);
CREATE INDEX certificate_metadata_end ON certificate_metadata (mount, not_after);
