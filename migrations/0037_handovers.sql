-- Objects that go from one applier to another without being deleted in between.
ALTER TABLE inventory
    -- Who owned it before, as `Kind namespace/name`; none where the applier announced it itself.
    ADD COLUMN handed_by    text,
    -- The applier's newest attempt then, which did not know of it; 0 where it had none.
    ADD COLUMN handed_after bigint;
CREATE INDEX inventory_handed ON inventory (applier) WHERE handed_after IS NOT NULL;
