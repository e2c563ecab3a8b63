-- How an instance sees a backend, from the moment one of the instances cannot use it. A backend is unhealthy once every
-- instance with a recent row has been unable to use it for long enough.
CREATE TABLE backend_views (
    backend_name  TEXT COLLATE "C" NOT NULL,
    instance      TEXT COLLATE "C" NOT NULL,
    -- For how long this instance could not use the backend when it wrote the row; NULL: it can use it.
    failing_ms    BIGINT,
    -- When the instance began to write this answer, and when it last did.
    since         BIGINT NOT NULL,
    seen_at       BIGINT NOT NULL,
    PRIMARY KEY (backend_name, instance)
);
