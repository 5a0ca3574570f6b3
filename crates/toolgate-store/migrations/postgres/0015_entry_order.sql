-- In SQLite, entries are stored in the order in which they are written. Here every table is.
COMMENT ON TABLE entries IS 'in the order in which they were written';
