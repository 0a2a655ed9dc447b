-- By which recipe something was built, what it read of its artifacts, and a digest of what it was answered: an artifact of a later revision that
-- answers the same is not built again.
ALTER TABLE build_cache ADD COLUMN recipe bytea, ADD COLUMN answers bytea, ADD COLUMN reads bytea;
ALTER TABLE build_cache ADD CHECK (recipe IS NULL OR (length(recipe) = 32 AND length(answers) = 32 AND reads IS NOT NULL));
CREATE INDEX build_cache_recipe ON build_cache (recipe, used_at) WHERE recipe IS NOT NULL;
