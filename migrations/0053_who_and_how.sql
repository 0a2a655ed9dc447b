-- What an entry of the audit log says besides: who really asked, from where, in which request, by an administrator's rights, how
-- often, and what changed. An entry in which all of these are as they are by default bears the MAC that older versions make.
ALTER TABLE audit
    ADD COLUMN impersonator  text    NOT NULL DEFAULT '',
    ADD COLUMN address       text    NOT NULL DEFAULT '',
    ADD COLUMN request       text    NOT NULL DEFAULT '',
    ADD COLUMN administrator boolean NOT NULL DEFAULT false,
    ADD COLUMN times         bigint  NOT NULL DEFAULT 1,
    -- A list of fields with their old and new values, as JSON.
    ADD COLUMN changes       text;
CREATE INDEX audit_by_user ON audit (username, id);
CREATE INDEX audit_by_impersonator ON audit (impersonator, id) WHERE impersonator <> '';
CREATE INDEX audit_by_verb ON audit (verb, id);
CREATE INDEX audit_by_place ON audit (namespace, name, id);
CREATE INDEX audit_by_request ON audit (request) WHERE request <> '';
CREATE INDEX audit_refused ON audit (id) WHERE outcome = 'refused';
CREATE INDEX audit_of_administrators ON audit (id) WHERE administrator;
