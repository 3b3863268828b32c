-- The seal of a token of the projects API: an empty body, sealed to the columns with the holder, the lookup value, the
-- secret hash and the expiry. A token without a seal is rejected. Tokens of earlier versions are sealed once, when the
-- store is opened.
ALTER TABLE api_tokens ADD COLUMN body BLOB;

-- The organization of the resource in each tag binding. So the tag filter of a list searches only the tags of this
-- organization. This copy is only a hint: the organization of the resource itself counts. A trigger sets the column, as
-- on PostgreSQL, where nodes of the previous version do not know it.
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

-- Includes the project, so that an index-only scan finds a page of workspaces of some projects in the order of names.
CREATE INDEX workspaces_names ON workspaces (org_id, name_lc, project_id);

-- The purpose of a team, for display only.
ALTER TABLE teams ADD COLUMN description TEXT;
