-- The key pair and the admin token that s3o generated, as JSON. A catalog that one process owns keeps them in a file.
CREATE TABLE generated_credentials (
    only_row  INTEGER PRIMARY KEY CHECK (only_row = 1),
    document  TEXT NOT NULL
) STRICT;
