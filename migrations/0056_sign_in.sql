-- Sessions of people who are signed in to the dashboard. Of what their cookies hold only a hash is here; the token that a session stands
-- for, what it is renewed with and when the session began are sealed for that hash, so that no row can be made, lengthened or put in
-- another's place by who can write the database.
CREATE TABLE sign_in_session (
    hash       bytea       PRIMARY KEY,
    -- By which the audit log names it.
    id         uuid        NOT NULL UNIQUE,
    -- Whose it is, to count them: the issuer and the user.
    owner      text        NOT NULL,
    sealed     bytea       NOT NULL,
    -- Counts renewals of what is sealed.
    version    bigint      NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL,
    used_at    timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    -- Until then one replica renews it.
    renewing_until timestamptz
);
CREATE INDEX sign_in_session_by_owner ON sign_in_session (owner, created_at);
CREATE INDEX sign_in_session_by_end ON sign_in_session (expires_at);

-- Sign-ins that have led to a session: none leads to two. Written only once the provider has vouched for somebody.
CREATE TABLE sign_in_used (
    state      bytea       PRIMARY KEY,
    expires_at timestamptz NOT NULL
);
