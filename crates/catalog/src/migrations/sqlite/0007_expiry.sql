-- When the object of an upload is to cease to exist, as JSON: a time to live counts from Complete.
ALTER TABLE multipart_uploads ADD COLUMN expiry TEXT;

-- Objects that cease to exist and are nobody's yet, by when.
CREATE INDEX objects_expiry ON objects (expires_at) WHERE expires_at IS NOT NULL AND deletion_status = 'NOT_EXPIRED';
