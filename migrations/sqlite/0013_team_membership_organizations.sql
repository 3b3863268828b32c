-- The organization of the team in each membership. So the query for the teams of a user in an organization does not
-- visit the user's teams in other organizations. This copy is only a hint: the organization of the team itself counts.
-- A trigger sets the column, as on PostgreSQL, where nodes of the previous version do not know it.

ALTER TABLE team_memberships ADD COLUMN org_id INTEGER;

CREATE TRIGGER team_memberships_org_id AFTER INSERT ON team_memberships WHEN NEW.org_id IS NULL
BEGIN
    UPDATE team_memberships SET org_id = (SELECT org_id FROM teams WHERE id = NEW.team_id)
    WHERE user_id = NEW.user_id AND team_id = NEW.team_id;
END;

UPDATE team_memberships SET org_id = (SELECT org_id FROM teams WHERE id = team_id);
CREATE INDEX team_memberships_user ON team_memberships (user_id, org_id, team_id);
