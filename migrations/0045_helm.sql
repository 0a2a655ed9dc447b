-- HelmRepositories and HelmCharts that an older version stored are fetched.
INSERT INTO schedule (uid, kind, due_at)
SELECT uid, 'source', now() FROM resource WHERE kind IN ('HelmRepository', 'HelmChart')
ON CONFLICT DO NOTHING;
