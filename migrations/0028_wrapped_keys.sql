-- What the data keys of a build's encrypted objects are wrapped as, as JSON; none where no object of it is encrypted. It is as the
-- objects have it, so nothing of it is secret.
ALTER TABLE build_labels ADD COLUMN wrapped_keys bytea;
