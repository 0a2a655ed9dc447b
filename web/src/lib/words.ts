/** Small things about texts. */

/** `1 cluster`, `2 clusters`, `1,000 clusters`. */
export function count(number: number, one: string, many = `${one}s`): string {
  return `${number.toLocaleString('en')} ${number === 1 ? one : many}`;
}

/** A revision for a narrow column: `main@sha1:1a2b3c4d`. */
export function shortRevision(revision: string): string {
  return revision.replace(/([0-9a-f]{8})[0-9a-f]{24,}/g, '$1');
}

/** An address that a browser may be sent to, or none: only http and https, and nothing that merely looks so. */
export function webAddress(text: string): string | null {
  if (!/^https?:\/\//i.test(text)) return null;
  try {
    const url = new URL(text);
    const web = url.protocol === 'https:' || url.protocol === 'http:';
    return web && url.username === '' && url.password === '' ? url.href : null;
  } catch {
    return null;
  }
}

/** Where known hosts show a commit, after the address of its repository. */
const COMMITS: Record<string, string> = {
  'github.com': '/commit/',
  'gitlab.com': '/-/commit/',
  'bitbucket.org': '/commits/',
};

/** Where the commit of a revision is shown, of a repository on a host that is known; none of any other. */
export function commitAddress(repository: string, revision: string | undefined): string | null {
  const commit = /@sha1:([0-9a-f]{40})$/.exec(revision ?? '')?.[1];
  if (commit === undefined || !URL.canParse(repository)) return null;
  const url = new URL(repository);
  const host = url.hostname.toLowerCase();
  const path = url.pathname.replace(/\/+$/, '').replace(/\.git$/, '');
  const between = Object.hasOwn(COMMITS, host) ? COMMITS[host] : undefined;
  const isRepository = ['https:', 'ssh:'].includes(url.protocol) && /^(?:\/[\w.~-]+){2,}$/.test(path);
  if (between === undefined || !isRepository || url.search !== '' || url.hash !== '') return null;
  return webAddress(`https://${host}${path}${between}${commit}`);
}

/** Whether each word of `query` is in one of the texts. Case does not matter. */
export function matches(query: string, texts: readonly string[]): boolean {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  return words.every((word) => texts.some((text) => text.toLowerCase().includes(word)));
}
