-- An organization that was deleted is gone from the moment of ended_at on; its rows go after that, some at a time. Its
-- name is free at once: name_lc is then one that nobody can ask for.

ALTER TABLE organizations ADD COLUMN ended_at bigint;
CREATE INDEX organizations_ended ON organizations (id) WHERE ended_at IS NOT NULL;
