-- What is inserted goes into the index at once: a look through the list of what waits to go in took longer, with each
-- Kustomization that was created, than all insertions.
ALTER INDEX resource_depends_on SET (fastupdate = off);
