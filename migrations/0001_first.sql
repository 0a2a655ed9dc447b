-- The hub's first schema. Forward only; later migrations expand, then contract.

-- One row. `epoch` counts the restores of this database; `last_version` is the last resource version given out, with
-- the epoch in its high bits (epoch << 40). A transaction that changes resources takes this row last, so that resource
-- versions become visible in their own order.
CREATE TABLE hub_state (
    one            boolean PRIMARY KEY DEFAULT true CHECK (one),
    epoch          bigint      NOT NULL DEFAULT 1 CHECK (epoch > 0),
    last_version   bigint      NOT NULL DEFAULT (1::bigint << 40),
    -- Watches that ask for anything at or below this are told 410 Gone.
    compacted      bigint      NOT NULL DEFAULT (1::bigint << 40),
    installed_at   timestamptz NOT NULL DEFAULT now()
);
INSERT INTO hub_state DEFAULT VALUES;

-- Running hub processes, so that what one claimed and left can be taken over.
CREATE TABLE hub_replica (
    id        uuid PRIMARY KEY,
    started   timestamptz NOT NULL DEFAULT now(),
    last_seen timestamptz NOT NULL DEFAULT now()
);

-- The hub's certificate authorities and serving keys. Keys are sealed (AES-256-GCM under the hub's key file).
CREATE TABLE authority (
    name            text PRIMARY KEY,
    certificate_pem text        NOT NULL,
    key_sealed      bytea       NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now()
);

-- Bearer tokens; only their hash is kept.
CREATE TABLE access_token (
    id         uuid PRIMARY KEY,
    hash       bytea       NOT NULL UNIQUE,
    username   text        NOT NULL,
    groups     text[]      NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz
);

-- Every Kubernetes-style object. `object` is the whole in its storage version, without what `sealed` holds (the data of
-- a Secret). Namespace is empty for cluster-scoped kinds.
CREATE TABLE resource (
    uid                uuid PRIMARY KEY,
    api_group          text        NOT NULL,
    kind               text        NOT NULL,
    namespace          text        NOT NULL,
    name               text        NOT NULL,
    generation         bigint      NOT NULL,
    resource_version   bigint      NOT NULL,
    created_at         timestamptz NOT NULL DEFAULT now(),
    deletion_timestamp timestamptz,
    object             jsonb       NOT NULL,
    sealed             bytea,
    UNIQUE (api_group, kind, namespace, name)
);
-- Which objects of a namespace refer to a source, so that a new revision wakes just those.
CREATE INDEX resource_source_ref ON resource
    ((object #>> '{spec,sourceRef,kind}'), (object #>> '{spec,sourceRef,name}'))
    WHERE kind = 'Kustomization';
CREATE INDEX resource_cluster_ref ON resource ((object #>> '{spec,clusterRef,name}')) WHERE kind = 'Kustomization';
CREATE INDEX resource_depends ON resource (uid)
    WHERE kind = 'Kustomization' AND object #> '{spec,dependsOn}' IS NOT NULL;
CREATE INDEX resource_namespace ON resource (namespace) WHERE namespace <> '';

-- The change log behind watches: `object` and `sealed` as they were after the change (before it, for a deletion).
CREATE TABLE resource_event (
    resource_version bigint PRIMARY KEY,
    type             text        NOT NULL CHECK (type IN ('ADDED', 'MODIFIED', 'DELETED')),
    uid              uuid        NOT NULL,
    api_group        text        NOT NULL,
    kind             text        NOT NULL,
    namespace        text        NOT NULL,
    name             text        NOT NULL,
    generation       bigint      NOT NULL,
    created_at       timestamptz NOT NULL,
    deletion_timestamp timestamptz,
    object           jsonb       NOT NULL,
    sealed           bytea,
    -- The labels before the change (none for an object that is new): whether it left a watch's selector.
    labels_before    jsonb,
    at               timestamptz NOT NULL DEFAULT now()
);

-- Who changed what. Never holds an object's content.
CREATE TABLE audit (
    id               bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at               timestamptz NOT NULL DEFAULT now(),
    username         text   NOT NULL,
    verb             text   NOT NULL,
    api_group        text   NOT NULL,
    kind             text   NOT NULL,
    namespace        text   NOT NULL,
    name             text   NOT NULL,
    resource_version bigint
);

-- When a resource is next to be looked at, and by whom it is being looked at. `wanted` grows with each request to look,
-- so that one which comes in the middle of a look is not lost.
CREATE TABLE schedule (
    uid           uuid PRIMARY KEY REFERENCES resource (uid) ON DELETE CASCADE,
    kind          text        NOT NULL,
    due_at        timestamptz NOT NULL,
    wanted        bigint      NOT NULL DEFAULT 1,
    claimed_by    uuid,
    claimed_until timestamptz
);
CREATE INDEX schedule_due ON schedule (kind, due_at);

-- Content-addressed bytes: artifacts (tar.gz) and builds (gzip of JSON). `sealed` where they may hold secrets.
CREATE TABLE blob (
    digest     bytea PRIMARY KEY CHECK (length(digest) = 32),
    size       bigint      NOT NULL,
    sealed     boolean     NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    used_at    timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE blob_chunk (
    digest bytea   NOT NULL REFERENCES blob (digest) ON DELETE CASCADE,
    part   integer NOT NULL,
    data   bytea   NOT NULL,
    PRIMARY KEY (digest, part)
);
-- They are compressed or encrypted already.
ALTER TABLE blob_chunk ALTER COLUMN data SET STORAGE EXTERNAL;

-- Which build came out of which inputs: the key is a digest of (artifact, path, overlay, engine version).
CREATE TABLE build_cache (
    inputs       bytea PRIMARY KEY CHECK (length(inputs) = 32),
    build_digest bytea       NOT NULL REFERENCES blob (digest) ON DELETE CASCADE,
    objects      integer     NOT NULL,
    used_at      timestamptz NOT NULL DEFAULT now()
);

-- What a Cluster turned out to be. The same cluster cannot be registered twice under two names.
CREATE TABLE cluster_identity (
    cluster_uid     uuid PRIMARY KEY REFERENCES resource (uid) ON DELETE CASCADE,
    kube_system_uid uuid        NOT NULL UNIQUE,
    -- The namespace that onboarded it has all rights; access rules come later, the column is here.
    onboarded_by    text        NOT NULL DEFAULT '',
    joined_at       timestamptz NOT NULL DEFAULT now()
);

-- Join tokens: short-lived, single use; only their hash is kept.
CREATE TABLE join_token (
    id          uuid PRIMARY KEY,
    hash        bytea       NOT NULL UNIQUE,
    cluster_uid uuid        NOT NULL REFERENCES resource (uid) ON DELETE CASCADE,
    created_at  timestamptz NOT NULL DEFAULT now(),
    expires_at  timestamptz NOT NULL,
    -- A token that was used may be used again with the same key only: an answer that got lost can be asked for again.
    used_at     timestamptz,
    used_by_key bytea
);

-- The public key that each cluster's agent enrolled with: a certificate for another key is refused.
CREATE TABLE agent_key (
    cluster_uid uuid PRIMARY KEY REFERENCES resource (uid) ON DELETE CASCADE,
    public_key  bytea       NOT NULL,
    enrolled_at timestamptz NOT NULL DEFAULT now()
);

-- The newest session of each cluster.
CREATE TABLE agent_session (
    cluster_uid        uuid PRIMARY KEY REFERENCES resource (uid) ON DELETE CASCADE,
    session            uuid        NOT NULL,
    replica            uuid        NOT NULL,
    agent_version      text        NOT NULL,
    kubernetes_version text        NOT NULL,
    connected_at       timestamptz NOT NULL DEFAULT now(),
    last_seen          timestamptz NOT NULL DEFAULT now(),
    disconnected_at    timestamptz
);

-- Which objects a Kustomization owns on a cluster, written ahead of the first write to the cluster.
CREATE TABLE inventory (
    cluster_uid   uuid NOT NULL,
    api_group     text NOT NULL,
    kind          text NOT NULL,
    namespace     text NOT NULL,
    name          text NOT NULL,
    version       text NOT NULL,
    kustomization uuid NOT NULL,
    -- Intended: announced, perhaps not there. Otherwise a reconciliation has seen it applied.
    intended      boolean NOT NULL,
    PRIMARY KEY (cluster_uid, api_group, kind, namespace, name)
);
CREATE INDEX inventory_owner ON inventory (kustomization, cluster_uid);

-- One row per attempt at reconciling. At most one of a Kustomization is open at a time.
CREATE TABLE reconciliation (
    kustomization uuid        NOT NULL,
    attempt       bigint      NOT NULL,
    cluster_uid   uuid,
    epoch         bigint      NOT NULL,
    generation    bigint      NOT NULL,
    build_digest  bytea,
    revision      text,
    -- The same revision may have another artifact, where the source's spec.ignore changed.
    artifact_digest bytea,
    -- The value of the reconcile annotation that it answers.
    request       text,
    deletes       boolean     NOT NULL,
    -- The dispatch as it is sent, without the build and the inventory; none where the hub itself failed before.
    dispatch      jsonb,
    started_at    timestamptz NOT NULL,
    deadline      timestamptz NOT NULL,
    -- The session that it was last sent in.
    sent_in       uuid,
    finished_at   timestamptz,
    reason        text,
    message       text,
    change_set    jsonb,
    timings       jsonb,
    PRIMARY KEY (kustomization, attempt)
);
CREATE UNIQUE INDEX reconciliation_open ON reconciliation (kustomization) WHERE finished_at IS NULL;
CREATE INDEX reconciliation_to_send ON reconciliation (cluster_uid) WHERE finished_at IS NULL;
