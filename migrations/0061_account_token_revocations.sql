-- Tokens of service accounts that were taken back one by one. Such a token lies in no table, so this one has those that are refused, until
-- they would have ended by themselves. A row only refuses: who can write it in gives nobody a right.
CREATE TABLE revoked_account_token (
    account_uid uuid        NOT NULL REFERENCES resource (uid) ON DELETE CASCADE,
    -- The token's name for itself.
    jti         uuid        NOT NULL,
    expires_at  timestamptz NOT NULL,
    revoked_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (account_uid, jti)
);
CREATE INDEX revoked_account_token_by_end ON revoked_account_token (expires_at);
