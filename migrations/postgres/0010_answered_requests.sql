-- Requests for a certificate that their caller may send again: by a key of the caller's, hashed with who asked. In the
-- order of their times where keys begin with one; they go a day after.
CREATE TABLE answered_request (
    key        BYTEA PRIMARY KEY,
    request    BYTEA NOT NULL,
    serial     BYTEA NOT NULL,
    lease      TEXT COLLATE "C",
    expires_at BIGINT NOT NULL
);
CREATE INDEX answered_request_end ON answered_request (expires_at);
