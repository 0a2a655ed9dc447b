-- What the issuers of the operator's file said of themselves the last time, so that a replica that starts while one of them is down knows its
-- keys. Such keys decide whom the hub believes: a row counts only with its MAC, and for a day.
CREATE TABLE issuer_answer (
    -- Of the issuer, where it is asked, and who may vouch for it: with another one of these it is another site.
    site          bytea       PRIMARY KEY,
    issuer        text        NOT NULL,
    configuration bytea       NOT NULL,
    keys          bytea       NOT NULL,
    received_at   timestamptz NOT NULL,
    mac           bytea       NOT NULL
);
