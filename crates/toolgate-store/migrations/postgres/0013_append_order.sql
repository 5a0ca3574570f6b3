-- A turn belongs to its session: another one cannot replace its row. In SQLite, rows of events and records are also stored in
-- the order in which they are written; here every table is.
ALTER TABLE turns DROP CONSTRAINT turns_pkey;
ALTER TABLE turns ADD PRIMARY KEY (session, turn);
DROP INDEX turns_by_session;
