-- As what somebody was taken for somebody else, beside the name: groups, uid and extra, as JSON. An entry without it bears the MAC
-- that older versions make.
ALTER TABLE audit ADD COLUMN impersonated text;
