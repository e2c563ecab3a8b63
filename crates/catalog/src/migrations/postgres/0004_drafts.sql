-- What the object would have been, as JSON, so that a write whose writer is gone can be finished.
ALTER TABLE pending_objects ADD COLUMN draft TEXT;
