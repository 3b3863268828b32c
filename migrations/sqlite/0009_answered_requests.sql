-- Requests for a certificate that their caller may send again: by a key of the caller's, hashed with who asked. In the
-- order of their times where keys begin with one; they go a day after.
CREATE TABLE answered_request (
    key        BLOB    PRIMARY KEY,
    request    BLOB    NOT NULL,
    serial     BLOB    NOT NULL,
    lease      TEXT,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX answered_request_end ON answered_request (expires_at);
