-- How far back this schema can be worked with: the newest migration that a replica has to know. A replica that is started and knows fewer ends with that word,
-- in place of statements that fail. A migration that removes or changes what the version before uses writes its own number here
-- (and into `BREAKING` of `hub/store/src/upgrade.rs`, which keeps it waiting while such a replica lives).
ALTER TABLE hub_state ADD COLUMN oldest_replica bigint NOT NULL DEFAULT 25;
