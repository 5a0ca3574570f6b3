-- What the events of a session add up to, so that a list of sessions does not read their logs: the number of calls, the
-- cost of all model requests in billionths of a dollar (-1 if it is unknown), the model that replied last, and the tool of
-- the first call. The program counts the events of sessions that exist already; the number of calls is null in those whose
-- events cannot be read.
ALTER TABLE sessions ADD COLUMN calls INTEGER DEFAULT 0;
ALTER TABLE sessions ADD COLUMN cost INTEGER;
ALTER TABLE sessions ADD COLUMN model TEXT;
ALTER TABLE sessions ADD COLUMN first_tool TEXT;
UPDATE sessions SET calls = NULL WHERE revision > 0;
CREATE INDEX approvals_answered_by_session ON approvals (session, call) WHERE state = 'answered';
CREATE INDEX approvals_running_by_session ON approvals (session, call) WHERE state = 'running';
