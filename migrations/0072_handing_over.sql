-- An applier owns, or takes over, an object that was there before, and has not written it yet: until it has, the object has none of its rights.
ALTER TABLE child ADD COLUMN handing_over boolean NOT NULL DEFAULT false;
