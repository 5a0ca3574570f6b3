-- Since when a session is hidden, if it is.
ALTER TABLE sessions ADD COLUMN hidden_at INTEGER;
