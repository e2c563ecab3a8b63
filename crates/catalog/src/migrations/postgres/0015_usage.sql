-- What each process sent to and received from a backend in a month, by the catalog's clock. Totals are cumulative, so
-- recording them twice changes nothing. The process '' is the sum of all processes of a past month.
CREATE TABLE backend_usage (
    month             TEXT COLLATE "C" NOT NULL,
    backend_name      TEXT COLLATE "C" NOT NULL,
    instance          TEXT COLLATE "C" NOT NULL,
    requests          BIGINT NOT NULL,
    egress_bytes      BIGINT NOT NULL,
    ingress_bytes     BIGINT NOT NULL,
    -- Totals up to which the process may count on its own while its lease lasts. Numbers without a limit have 0.
    requests_ceiling  BIGINT NOT NULL DEFAULT 0,
    egress_ceiling    BIGINT NOT NULL DEFAULT 0,
    ingress_ceiling   BIGINT NOT NULL DEFAULT 0,
    lease_until       BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (month, backend_name, instance)
);

-- Grows with every change of a ceiling: ceilings are computed from rows that were read before, and are stored only if
-- no other process has stored any since.
CREATE TABLE usage_ceilings (
    only_row  BIGINT PRIMARY KEY CHECK (only_row = 1),
    revision  BIGINT NOT NULL
);
INSERT INTO usage_ceilings (only_row, revision) VALUES (1, 0);
