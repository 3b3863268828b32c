-- What belongs to a certificate beside its row: leases, and what callers attach.

-- Leases of certificates; the end is that of the certificate. A lease with ending = 1 is being revoked:
-- nobody is shown it any more, and its certificate is still to be revoked.
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

-- Tokens that ended with leases that are still to be marked as ending.
CREATE TABLE ended_token (
    hash BYTEA PRIMARY KEY
);

-- What callers attached to a certificate; bodies are sealed.
CREATE TABLE certificate_metadata (
    mount     BIGINT NOT NULL,
    serial    BYTEA NOT NULL,
    not_after BIGINT NOT NULL,
    body      BYTEA NOT NULL,
    PRIMARY KEY (mount, serial)
);
CREATE INDEX certificate_metadata_end ON certificate_metadata (mount, not_after);
