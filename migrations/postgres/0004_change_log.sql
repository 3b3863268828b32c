-- The change log, by which each node follows the changes of other nodes. The row of a mount records the last change of
-- its documents, revocations and CRLs. A node reads the rows of all transactions that its last read could not see, so
-- the order of commits does not matter.

ALTER TABLE mount
    -- Number of commits that changed documents of the mount.
    ADD COLUMN version BIGINT NOT NULL DEFAULT 0,
    -- The node of the last such commit, and the version since which all commits are its own. So a node can tell
    -- whether it made all commits that its last read has not seen.
    ADD COLUMN writer BIGINT NOT NULL DEFAULT 0,
    ADD COLUMN writer_from BIGINT NOT NULL DEFAULT 0,
    -- Number of published CRLs. For revocations, rev_seq is used.
    ADD COLUMN crl_seq BIGINT NOT NULL DEFAULT 0,
    -- The last transaction that changed one of these columns or rev_seq, and its time.
    ADD COLUMN changed_by BIGINT NOT NULL DEFAULT 0,
    ADD COLUMN changed_at_micros BIGINT NOT NULL DEFAULT 0;
CREATE INDEX mount_changed ON mount (changed_by);
