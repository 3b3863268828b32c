-- Private entries of tokens, and responses wrapped in a token. They are removed together with the token. Bodies are
-- sealed. Only a wrapped response has an empty path.
CREATE TABLE cubbyhole (
    token BYTEA NOT NULL REFERENCES token (hash) ON DELETE CASCADE,
    path  TEXT COLLATE "C" NOT NULL,
    body  BYTEA NOT NULL,
    PRIMARY KEY (token, path)
);
