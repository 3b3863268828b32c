-- The access of teams to individual workspaces. custom: a JSON object of the keys of a custom level.
CREATE TABLE team_workspace_access (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    ext_id       TEXT NOT NULL UNIQUE,
    team_id      INTEGER NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
    workspace_id INTEGER NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    access       TEXT NOT NULL CHECK (access IN ('read', 'plan', 'write', 'admin', 'custom')),
    custom       TEXT,
    UNIQUE (team_id, workspace_id)
) STRICT;
CREATE INDEX team_workspace_access_workspace ON team_workspace_access (workspace_id, id);
