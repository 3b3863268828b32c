-- What tidy needs: expired rows in the order of their end, and who is at it.

-- With the serial, so that a page goes on exactly where the last one ended, however many certificates
-- end in the same second.
DROP INDEX certificate_end;
CREATE INDEX certificate_end ON certificate (mount, not_after, serial);
CREATE INDEX revocation_end ON revocation (mount, not_after);

-- The run of tidy that is under way in a mount, or the last one. It is under way until valid_until, which
-- its holder moves on; run changes with every run.
CREATE TABLE tidy (
    mount       INTEGER PRIMARY KEY REFERENCES mount (id),
    run         INTEGER NOT NULL,
    valid_until INTEGER NOT NULL,
    cancelled   INTEGER NOT NULL,
    report      BLOB    NOT NULL
) STRICT;
