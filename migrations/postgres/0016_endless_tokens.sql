-- Tokens that never expire; the server status reports their number. Only root tokens have no expiry, so the index stays
-- small.
CREATE INDEX token_endless ON token (hash) WHERE expires_at_micros IS NULL;
