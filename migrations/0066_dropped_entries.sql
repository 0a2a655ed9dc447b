-- The highest number of an entry of the audit log that was dropped for its age, under the row's MAC: what is missing beyond it was removed.
-- Null where an older version dropped them, and what it leaves there is not under its MAC.
ALTER TABLE audit_trimmed ADD COLUMN last_entry bigint;
