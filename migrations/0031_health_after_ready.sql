-- Of an applier that rests its agent goes on telling how healthy it is, where it is suspended and not gone.
ALTER TABLE resting ADD COLUMN health_goes_on boolean NOT NULL DEFAULT false;
