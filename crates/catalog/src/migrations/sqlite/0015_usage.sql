-- What each process sent to and received from a backend in a month, by the catalog's clock. Totals are cumulative, so
-- recording them twice changes nothing. The process '' is the sum of all processes of a past month.
CREATE TABLE backend_usage (
    month             TEXT NOT NULL,
    backend_name      TEXT NOT NULL,
    instance          TEXT NOT NULL,
    requests          INTEGER NOT NULL,
    egress_bytes      INTEGER NOT NULL,
    ingress_bytes     INTEGER NOT NULL,
    -- Totals up to which the process may count on its own while its lease lasts. Numbers without a limit have 0.
    requests_ceiling  INTEGER NOT NULL DEFAULT 0,
    egress_ceiling    INTEGER NOT NULL DEFAULT 0,
    ingress_ceiling   INTEGER NOT NULL DEFAULT 0,
    lease_until       INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (month, backend_name, instance)
) STRICT, WITHOUT ROWID;

-- Grows with every change of a ceiling: ceilings are computed from rows that were read before, and are stored only if
-- no other process has stored any since.
CREATE TABLE usage_ceilings (
    only_row  INTEGER PRIMARY KEY CHECK (only_row = 1),
    revision  INTEGER NOT NULL
) STRICT;
INSERT INTO usage_ceilings (only_row, revision) VALUES (1, 0);
