-- Until when what somebody asks for waits, because that was asked for too often. What else makes a pass due does not wait for it.
ALTER TABLE schedule ADD COLUMN paced_until timestamptz;
