-- The order in which agents come to run an image is drawn once for each image that is wanted.
CREATE TABLE agent_rollout (
    image text   PRIMARY KEY,
    seed  bigint NOT NULL
);
-- An agent whose cluster does not allow an order says so; that is no failure of the image.
ALTER TABLE agent_order DROP CONSTRAINT agent_order_state_check;
ALTER TABLE agent_order ADD CONSTRAINT agent_order_state_check
    CHECK (state IN ('told', 'under_way', 'failed', 'refused'));
