-- Recorded responses for certificate requests with an idempotency key. `key` is a hash of the caller and its key. Keys
-- that begin with a time are stored in the order of these times. Rows are removed after a day.
CREATE TABLE answered_request (
    key        BYTEA PRIMARY KEY,
    request    BYTEA NOT NULL,
    serial     BYTEA NOT NULL,
    lease      TEXT COLLATE "C",
    expires_at BIGINT NOT NULL
);
CREATE INDEX answered_request_end ON answered_request (expires_at);
