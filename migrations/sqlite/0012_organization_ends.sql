-- A deleted organization is invisible from ended_at on; its rows are removed later, in small steps. Its name is free
-- immediately, because name_lc is replaced by a value that no request can contain.

ALTER TABLE organizations ADD COLUMN ended_at INTEGER;
CREATE INDEX organizations_ended ON organizations (id) WHERE ended_at IS NOT NULL;
