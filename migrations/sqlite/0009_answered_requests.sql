-- Recorded responses for certificate requests with an idempotency key. `key` is a hash of the caller and its key. Keys
-- that begin with a time are stored in the order of these times. Rows are removed after a day.
CREATE TABLE answered_request (
    key        BLOB    PRIMARY KEY,
    request    BLOB    NOT NULL,
    serial     BLOB    NOT NULL,
    lease      TEXT,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX answered_request_end ON answered_request (expires_at);
