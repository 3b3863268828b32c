-- The organization of a team beside each of its members: who is in ten thousand teams of other organizations is not
-- looked up through all of them. It is a hint: what counts is the team's own, which changes when a team is deleted.
-- As on PostgreSQL, where nodes of the version before do not know the column, a trigger fills it in.

ALTER TABLE team_memberships ADD COLUMN org_id INTEGER;

CREATE TRIGGER team_memberships_org_id AFTER INSERT ON team_memberships WHEN NEW.org_id IS NULL
BEGIN
    UPDATE team_memberships SET org_id = (SELECT org_id FROM teams WHERE id = NEW.team_id)
    WHERE user_id = NEW.user_id AND team_id = NEW.team_id;
END;

UPDATE team_memberships SET org_id = (SELECT org_id FROM teams WHERE id = team_id);
CREATE INDEX team_memberships_user ON team_memberships (user_id, org_id, team_id);
