-- How often the books were repaired: two audits that found the same drift do not both apply it.
ALTER TABLE backend_quotas ADD COLUMN repairs BIGINT NOT NULL DEFAULT 0;

-- Uploads that may have been given up, and objects whose deletion may be stuck.
CREATE INDEX multipart_uploads_age ON multipart_uploads (created_at, id) WHERE state = 'open';
CREATE INDEX objects_in_deletion ON objects (deletion_initiated_at) WHERE deletion_status = 'DELETION_IN_PROGRESS';
