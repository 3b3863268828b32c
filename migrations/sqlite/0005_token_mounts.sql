-- The mount of the authentication method whose login created the token or its ancestor. Tokens end with this mount.

ALTER TABLE token ADD COLUMN mount INTEGER;
CREATE INDEX token_mount ON token (mount) WHERE mount IS NOT NULL;

-- Tokens without remaining uses, whose rows can be removed.
CREATE INDEX token_used_up ON token (hash) WHERE uses = 0;
