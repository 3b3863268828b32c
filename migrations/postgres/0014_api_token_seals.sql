-- The seal of a token of the projects API: an empty body, sealed to the columns with the holder, the lookup value, the
-- secret hash and the expiry. A token without a seal is rejected. Tokens of earlier versions are sealed once, when the
-- store is opened.
ALTER TABLE api_tokens ADD COLUMN body bytea;

-- The organization of the resource in each tag binding. So the tag filter of a list searches only the tags of this
-- organization. This copy is only a hint: the organization of the resource itself counts. Nodes of the previous version
-- do not know the column; the trigger sets it for them.
ALTER TABLE tag_bindings ADD COLUMN org_id bigint;

CREATE FUNCTION tag_bindings_org_id() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.org_id := COALESCE((SELECT org_id FROM workspaces WHERE id = NEW.workspace_id),
        (SELECT org_id FROM projects WHERE id = NEW.project_id));
    RETURN NEW;
END
$$;
CREATE TRIGGER tag_bindings_org_id BEFORE INSERT ON tag_bindings
    FOR EACH ROW WHEN (NEW.org_id IS NULL) EXECUTE FUNCTION tag_bindings_org_id();

UPDATE tag_bindings b SET org_id = w.org_id FROM workspaces w WHERE w.id = b.workspace_id;
UPDATE tag_bindings b SET org_id = p.org_id FROM projects p WHERE p.id = b.project_id;
CREATE INDEX tag_bindings_org ON tag_bindings (org_id, key, value);
DROP INDEX tag_bindings_key_value;

-- Inserts go directly into the index. Otherwise each search would scan a list of pending entries until the next vacuum.
ALTER INDEX projects_name_trgm SET (fastupdate = off);
ALTER INDEX workspaces_name_trgm SET (fastupdate = off);
SELECT gin_clean_pending_list('projects_name_trgm'), gin_clean_pending_list('workspaces_name_trgm');

-- Includes the project, so that an index-only scan finds a page of workspaces of some projects in the order of names.
ALTER TABLE workspaces DROP CONSTRAINT workspaces_org_id_name_lc_key;
ALTER TABLE workspaces ADD CONSTRAINT workspaces_org_id_name_lc_key UNIQUE (org_id, name_lc) INCLUDE (id, project_id);

-- The purpose of a team, for display only.
ALTER TABLE teams ADD COLUMN description text;
