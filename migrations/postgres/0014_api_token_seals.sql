-- Tokens of the projects API are sealed: body is empty and opens only beside the columns that say whose a token is, by
-- what it is recognised and when it ends. A token without one is refused. The tokens of earlier versions are sealed when
-- the store is opened, once.
ALTER TABLE api_tokens ADD COLUMN body bytea;

-- The organization of a binding beside its resource: what a list is narrowed by is looked up among the organization's own
-- tags, and costs what it finds. It is a hint: what counts is the resource's own. Nodes of the version before do not know
-- the column; the trigger fills it in for them.
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

-- What was just inserted is in the index itself, not in a list that every search walks through until a vacuum comes.
ALTER INDEX projects_name_trgm SET (fastupdate = off);
ALTER INDEX workspaces_name_trgm SET (fastupdate = off);
SELECT gin_clean_pending_list('projects_name_trgm'), gin_clean_pending_list('workspaces_name_trgm');

-- With the project, so that a page of some projects' workspaces in the order of names is found in the index alone.
ALTER TABLE workspaces DROP CONSTRAINT workspaces_org_id_name_lc_key;
ALTER TABLE workspaces ADD CONSTRAINT workspaces_org_id_name_lc_key UNIQUE (org_id, name_lc) INCLUDE (id, project_id);

-- What a team is for; without effect.
ALTER TABLE teams ADD COLUMN description text;
