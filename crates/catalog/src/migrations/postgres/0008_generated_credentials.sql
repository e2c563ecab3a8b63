-- The key pair and the admin token that s3o generated, as JSON, for all instances on this catalog.
CREATE TABLE generated_credentials (
    only_row  BIGINT PRIMARY KEY CHECK (only_row = 1),
    document  TEXT COLLATE "C" NOT NULL
);
