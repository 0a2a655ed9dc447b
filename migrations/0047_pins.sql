-- Artifacts to which appliers are pinned are kept: each minute it is asked which those are.
CREATE INDEX resource_pinned ON resource ((object #>> '{spec,pin,revision}')) WHERE object #>> '{spec,pin,revision}' IS NOT NULL;
