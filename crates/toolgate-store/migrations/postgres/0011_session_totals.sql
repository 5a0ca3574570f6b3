-- What the events of a session add up to, so that a list of sessions does not read their logs: the number of calls, the
-- cost of all model requests in billionths of a dollar (-1 if it is unknown), the model that replied last, and the tool of
-- the first call.
ALTER TABLE sessions ADD COLUMN calls bigint DEFAULT 0;
ALTER TABLE sessions ADD COLUMN cost bigint;
ALTER TABLE sessions ADD COLUMN model text;
ALTER TABLE sessions ADD COLUMN first_tool text;
UPDATE sessions SET calls = (
    SELECT count(*) FROM events WHERE session = sessions.id AND body::json ->> 'type' = 'tool_requested'
);
UPDATE sessions SET cost = (
    SELECT CASE WHEN bool_or(body::json ->> 'cost' = 'unknown') THEN -1
                ELSE sum((body::json -> 'cost' ->> 'nano_usd')::bigint) END
    FROM events WHERE session = sessions.id AND body::json ->> 'type' = 'inference_finished'
);
UPDATE sessions SET model = (
    SELECT body::json ->> 'model' FROM events
    WHERE session = sessions.id AND body::json ->> 'type' = 'inference_finished' AND body::json ->> 'model' IS NOT NULL
    ORDER BY sequence DESC LIMIT 1
);
UPDATE sessions SET first_tool = (
    SELECT body::json ->> 'tool_name' FROM events
    WHERE session = sessions.id AND body::json ->> 'type' = 'tool_requested'
    ORDER BY sequence LIMIT 1
);
UPDATE approvals SET state = 'running' WHERE state = 'answered' AND EXISTS (
    SELECT 1 FROM events
    WHERE events.session = approvals.session AND body::json ->> 'type' = 'tool_execution_started'
      AND body::json ->> 'invocation_id' = approvals.call::text
      AND coalesce(body::json ->> 'external', 'false') = 'false'
);
CREATE INDEX approvals_answered_by_session ON approvals (session, call) WHERE state = 'answered';
CREATE INDEX approvals_running_by_session ON approvals (session, call) WHERE state = 'running';
