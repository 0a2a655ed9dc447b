/**
 * The kinds of appliers that the dashboard knows more of than what all have in common. A kind is a file here and a line in the
 * table. One that is not in it has a page all the same, with what the hub tells of every applier.
 */
import type { ApplierKind } from './kind';
import { kustomization } from './kustomization';

export const APPLIER_KINDS: readonly ApplierKind[] = [kustomization];

export function applierKind(kind: string): ApplierKind | undefined {
  return APPLIER_KINDS.find((known) => known.kind === kind);
}
