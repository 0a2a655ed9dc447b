// A real OpenID provider (oidc-provider of npm) with people who sign in by a password, for tests: https://127.0.0.1:PORT, with the
// certificate and the key of the folder that it is given. Its signing keys are new each time that it starts.
//
//   node provider.mjs FOLDER-WITH-NODE_MODULES PORT FOLDER-WITH-CERTIFICATE
import { createServer } from 'node:https';
import { generateKeyPairSync, randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [modules, port, folder] = process.argv.slice(2);
const entry = createRequire(`${modules}/`).resolve('oidc-provider');
const { Provider, errors } = await import(pathToFileURL(entry));

const people = {
  jane: { sub: 'jane', password: 'of jane', groups: ['dev', 'system:masters'], email: 'jane@example.com', email_verified: true },
  joe: { sub: 'joe', password: 'of joe', groups: [], email: 'joe@example.com', email_verified: false },
};
for (let index = 0; index < 1000; index += 1) {
  const sub = `user-${index}`;
  people[sub] = { sub, password: `of ${sub}`, groups: [`team-${index % 50}`], email: `${sub}@example.com`, email_verified: true };
}
const client = (client_id, algorithm) => ({
  client_id, client_secret: 'of the client', grant_types: ['password'], redirect_uris: [], response_types: [],
  id_token_signed_response_alg: algorithm,
});
// Where the dashboard and the command line sign people in: jane is always signed in and agrees.
const browser = [
  { client_id: 'dashboard', client_secret: 'of the client', redirect_uris: ['https://hub.test/'] },
  { client_id: 'cli', token_endpoint_auth_method: 'none', application_type: 'native', redirect_uris: ['http://127.0.0.1/callback'] },
].map((one) => ({
  ...one, grant_types: ['authorization_code', 'refresh_token', 'urn:ietf:params:oauth:grant-type:device_code'], response_types: ['code'],
}));
const key = (alg, type, options) => {
  const { privateKey } = generateKeyPairSync(type, options);
  return { ...privateKey.export({ format: 'jwk' }), kid: randomUUID(), use: 'sig', alg };
};

const provider = new Provider(`https://127.0.0.1:${port}`, {
  clients: [client('kubernetes', 'RS256'), client('by-ec', 'ES384'), client('by-ed', 'EdDSA'), client('another', 'RS256'), ...browser],
  jwks: { keys: [
    key('RS256', 'rsa', { modulusLength: 2048 }),
    key('ES384', 'ec', { namedCurve: 'P-384' }),
    key('EdDSA', 'ed25519', {}),
  ] },
  claims: { openid: ['sub', 'jti', 'groups', 'email', 'email_verified'] },
  cookies: { keys: [randomUUID()] },
  enabledJWA: { idTokenSigningAlgValues: ['RS256', 'ES384', 'EdDSA'] },
  features: { devInteractions: { enabled: false }, deviceFlow: { enabled: true } },
  findAccount: (_, id) => ({ accountId: id, claims: () => people[id] }),
  scopes: ['openid', 'offline_access'],
  // Those of people in browsers are renewed soon.
  ttl: { IdToken: (ctx, token, { clientId }) => ({ dashboard: 66, cli: 36 })[clientId] ?? 3600 },
  interactions: { url: (ctx, { uid }) => `/interaction/${uid}` },
});
provider.registerGrantType('password', async (ctx) => {
  const { username, password } = ctx.oidc.params;
  const person = Object.hasOwn(people, username) ? people[username] : undefined;
  if (person?.password !== password) throw new errors.InvalidGrant('the password is wrong');
  const token = new provider.IdToken({ ...person, jti: randomUUID() }, { ctx });
  token.scope = 'openid';
  ctx.body = { token_type: 'Bearer', id_token: await token.issue({ use: 'idtoken' }) };
}, ['username', 'password']);

// Hubs of tests listen on any port.
const { redirectUriAllowed } = provider.Client.prototype;
provider.Client.prototype.redirectUriAllowed = function allowed(uri) {
  const back = /^https:\/\/127\.0\.0\.1:\d+\/fleet\/v1\/sign-in\/callback$/;
  return this.clientId === 'dashboard' ? back.test(uri) : redirectUriAllowed.call(this, uri);
};
const { postLogoutRedirectUriAllowed } = provider.Client.prototype;
provider.Client.prototype.postLogoutRedirectUriAllowed = function allowed(uri) {
  const back = /^https:\/\/127\.0\.0\.1:\d+\/ui\/$/;
  return this.clientId === 'dashboard' ? back.test(uri) : postLogoutRedirectUriAllowed.call(this, uri);
};
provider.use(async (ctx, next) => {
  if (!ctx.path.startsWith('/interaction/')) return next();
  const { prompt, params, grantId } = await provider.interactionDetails(ctx.req, ctx.res);
  ctx.respond = false;
  if (prompt.name === 'login') {
    return provider.interactionFinished(ctx.req, ctx.res, { login: { accountId: 'jane' } });
  }
  const grant = grantId
    ? await provider.Grant.find(grantId)
    : new provider.Grant({ accountId: 'jane', clientId: params.client_id });
  grant.addOIDCScope(params.scope);
  const result = { consent: { grantId: await grant.save() } };
  return provider.interactionFinished(ctx.req, ctx.res, result, { mergeWithLastSubmission: true });
});

const tls = { cert: readFileSync(`${folder}/tls.crt`), key: readFileSync(`${folder}/tls.key`) };
createServer(tls, provider.callback()).listen(Number(port), '127.0.0.1', () => console.log('serves'));
