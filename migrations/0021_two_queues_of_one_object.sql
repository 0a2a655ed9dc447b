-- An object may be due in more than one queue. Replicas of older versions name the former key in their statements, so this one is
-- not made while such a replica lives (`hub/store/src/upgrade.rs`).
ALTER TABLE schedule DROP CONSTRAINT schedule_pkey;
ALTER TABLE schedule ADD PRIMARY KEY (uid, kind);
