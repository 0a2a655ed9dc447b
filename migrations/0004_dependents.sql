-- Which Kustomizations name another one in `spec.dependsOn`. Without a statistic for the expression the planner took the
-- index before it for as large as the table, and read all Kustomizations at each creation of one.
CREATE INDEX resource_depends_on ON resource USING gin ((object #> '{spec,dependsOn}') jsonb_path_ops)
    WHERE kind = 'Kustomization' AND object #> '{spec,dependsOn}' IS NOT NULL;
DROP INDEX resource_depends;
