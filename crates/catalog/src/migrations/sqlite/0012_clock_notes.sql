-- The present time as it was last noted, so that a start notices a clock that went back.
ALTER TABLE cluster ADD COLUMN noted_at INTEGER;
