import type { ObjectId } from '../api/kinds';
import { SOURCE_KINDS } from '../api/kinds';

/** The address of an object's page; none where its kind has none. */
export function pageOf({ kind, namespace, name }: ObjectId): string | null {
  const [ns, own] = [encodeURIComponent(namespace), encodeURIComponent(name)];
  if (kind === 'Cluster') return `/clusters/${own}`;
  if (kind === 'Kustomization') return `/kustomizations/${ns}/${own}`;
  return SOURCE_KINDS.some((source) => source.kind === kind) ? `/sources/${kind}/${ns}/${own}` : null;
}
