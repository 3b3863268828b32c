-- For tidy (the removal of expired rows): expired rows in the order of their expiry, and the current run.

-- Includes the serial, so that a page starts exactly after the previous one, even if many certificates expire in the
-- same second.
DROP INDEX certificate_end;
CREATE INDEX certificate_end ON certificate (mount, not_after, serial);
CREATE INDEX revocation_end ON revocation (mount, not_after);

-- The current or last run of tidy in each mount. A run is active until valid_until, which the running node extends.
-- `run` identifies the run.
CREATE TABLE tidy (
    mount       INTEGER PRIMARY KEY REFERENCES mount (id),
    run         INTEGER NOT NULL,
    valid_until INTEGER NOT NULL,
    cancelled   INTEGER NOT NULL,
    report      BLOB    NOT NULL
) STRICT;
