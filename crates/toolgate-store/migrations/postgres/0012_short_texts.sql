-- In SQLite, bodies may be stored without what they repeat. Here they are whole.
COMMENT ON TABLE events IS 'bodies are whole';
