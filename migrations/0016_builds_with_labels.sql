-- What an agent intends to own is held against the objects of the build, which are in build_labels. Builds that were made
-- before that table was there are made anew.
DELETE FROM build_cache WHERE build_digest NOT IN (SELECT build_digest FROM build_labels);
