-- Tokens that never expire, which the status of the server counts. Only root tokens can, so the index stays small.
CREATE INDEX token_endless ON token (hash) WHERE expires_at_micros IS NULL;
