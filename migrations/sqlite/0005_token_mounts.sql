-- Tokens end with the authentication method whose login they, or those that they descend from, began with.

ALTER TABLE token ADD COLUMN mount INTEGER;
CREATE INDEX token_mount ON token (mount) WHERE mount IS NOT NULL;
