-- The provider of the model that replied last, which an event has apart from the name of the model. The program reads it from
-- the events of sessions that exist already.
ALTER TABLE sessions ADD COLUMN provider TEXT;
