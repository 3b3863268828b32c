-- What changed, for nodes that follow each other: one row per mount says when its documents, revocations
-- and CRLs changed last. A reader asks for the rows changed by transactions that it could not see before,
-- so the order of commits does not matter.

ALTER TABLE mount
    -- Commits that changed documents of the mount.
    ADD COLUMN version BIGINT NOT NULL DEFAULT 0,
    -- The node of the last one, and the version at which its commits in a row began: a node knows by these
    -- that all it has not seen is its own.
    ADD COLUMN writer BIGINT NOT NULL DEFAULT 0,
    ADD COLUMN writer_from BIGINT NOT NULL DEFAULT 0,
    -- CRLs published; revocations have rev_seq.
    ADD COLUMN crl_seq BIGINT NOT NULL DEFAULT 0,
    -- The last transaction that changed one of these, and when it did.
    ADD COLUMN changed_by BIGINT NOT NULL DEFAULT 0,
    ADD COLUMN changed_at_micros BIGINT NOT NULL DEFAULT 0;
CREATE INDEX mount_changed ON mount (changed_by);
