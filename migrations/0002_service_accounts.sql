-- Tokens of service accounts end with their account.
ALTER TABLE access_token ADD COLUMN account_uid uuid REFERENCES resource (uid) ON DELETE CASCADE;
CREATE INDEX access_token_account ON access_token (account_uid) WHERE account_uid IS NOT NULL;
-- Events are dropped some time after they last happened.
CREATE INDEX resource_events ON resource (created_at) WHERE kind = 'Event';
