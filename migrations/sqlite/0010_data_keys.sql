-- Number of values that each data key has sealed. Each node adds its number at intervals, so recent values are missing.
CREATE TABLE data_key_use (
    term   INTEGER PRIMARY KEY,
    sealed INTEGER NOT NULL
) STRICT;
