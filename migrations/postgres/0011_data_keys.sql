-- How much each data key has sealed, as far as the nodes have told. What one sealed since it last told is not in it.
CREATE TABLE data_key_use (
    term   BIGINT PRIMARY KEY,
    sealed BIGINT NOT NULL
);
