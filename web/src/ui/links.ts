import type { ObjectId } from '../api/kinds';
import { SOURCE_KINDS } from '../api/kinds';
import { applierKind } from '../pages/applier/kinds';

/** The address of an object's page; none where its kind has none. */
export function pageOf(id: ObjectId): string | null {
  const { kind, namespace, name } = id;
  if (kind === 'Cluster') return `/clusters/${encodeURIComponent(name)}`;
  if (applierKind(kind)) return applierPage(id);
  if (!SOURCE_KINDS.some((source) => source.kind === kind)) return null;
  return `/sources/${[kind, namespace, name].map(encodeURIComponent).join('/')}`;
}

/** The address of the page of an object that is known to be an applier, whatever its kind. */
export function applierPage({ kind, namespace, name }: ObjectId): string {
  return `/appliers/${[kind, namespace, name].map(encodeURIComponent).join('/')}`;
}

/** The address of what the audit log has of an object. */
export function auditOf({ kind, namespace, name }: ObjectId): string {
  const query = new URLSearchParams({ kind, namespace, name });
  return `/audit?${query.toString()}`;
}
