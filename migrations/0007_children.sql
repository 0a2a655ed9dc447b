-- Objects on the hub that a Kustomization's build holds: Kustomizations, sources, alerts. Written ahead of the object itself.
CREATE TABLE child (
    kind      text NOT NULL,
    namespace text NOT NULL,
    name      text NOT NULL,
    -- The Kustomization that owns it.
    parent    uuid NOT NULL REFERENCES resource (uid) ON DELETE CASCADE,
    -- The newest build that was begun with holds it; else it goes once that is applied.
    wanted    boolean NOT NULL,
    PRIMARY KEY (kind, namespace, name)
);
CREATE INDEX child_parent ON child (parent);

-- Those objects of a build, as JSON; none where there are none.
ALTER TABLE build_cache ADD COLUMN children bytea;
