-- The session whose call started this one, if it is the session of an agent. Such a session has the id of the call, so
-- for sessions that exist already it is found in the log that requested the call.
ALTER TABLE sessions ADD COLUMN parent uuid;
UPDATE sessions SET parent = requested.session
FROM (
    SELECT session, substring(body FROM '"invocation_id":"([0-9a-f-]{36})"') AS id
    FROM events WHERE body LIKE '%"type":"tool_requested"%'
) AS requested
WHERE sessions.id::text = requested.id;
