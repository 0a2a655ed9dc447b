-- Which trace leads to what is stored, as W3C's traceparent: only where traces are made, and empty everywhere else.
ALTER TABLE schedule ADD COLUMN trace text;
ALTER TABLE reconciliation ADD COLUMN trace text;
ALTER TABLE news ADD COLUMN trace text;
ALTER TABLE delivery ADD COLUMN trace text;
