-- Tokens of the projects API are sealed: body is empty and opens only beside the columns that say whose a token is, by
-- what it is recognised and when it ends. A token without one is refused. The tokens of earlier versions are sealed when
-- the store is opened, once.
ALTER TABLE api_tokens ADD COLUMN body BLOB;

-- The organization of a binding beside its resource: what a list is narrowed by is looked up among the organization's own
-- tags, and costs what it finds. It is a hint: what counts is the resource's own. As on PostgreSQL, where nodes of the
-- version before do not know the column, a trigger fills it in.
ALTER TABLE tag_bindings ADD COLUMN org_id INTEGER;

CREATE TRIGGER tag_bindings_org_id AFTER INSERT ON tag_bindings WHEN NEW.org_id IS NULL
BEGIN
    UPDATE tag_bindings SET org_id = COALESCE((SELECT org_id FROM workspaces WHERE id = NEW.workspace_id),
        (SELECT org_id FROM projects WHERE id = NEW.project_id)) WHERE id = NEW.id;
END;

UPDATE tag_bindings SET org_id = COALESCE((SELECT org_id FROM workspaces WHERE id = workspace_id),
    (SELECT org_id FROM projects WHERE id = project_id));
CREATE INDEX tag_bindings_org ON tag_bindings (org_id, key, value);
DROP INDEX tag_bindings_key_value;

-- With the project, so that a page of some projects' workspaces in the order of names is found in the index alone.
CREATE INDEX workspaces_names ON workspaces (org_id, name_lc, project_id);

-- What a team is for; without effect.
ALTER TABLE teams ADD COLUMN description TEXT;
