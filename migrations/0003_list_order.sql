-- Lists and their pages go by namespace and name in the order of bytes, whatever the database's locale says.
CREATE INDEX resource_list ON resource (api_group, kind, namespace COLLATE "C", name COLLATE "C");
-- Whether anything of a kind changed since some version, and where a watch of a kind goes on.
CREATE INDEX resource_event_kind ON resource_event (api_group, kind, resource_version);
