-- Why the agent's apiserver does not answer it, while that is so. It is the session's: a new one begins without it.
ALTER TABLE agent_session ADD COLUMN unreachable text;
