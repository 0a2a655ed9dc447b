/** Kustomizations of Flux: a path of one source, built by kustomize. */
import type { KubeObject } from '../../../api/kinds';
import type { ApplierKind, Fact } from './kind';
import { yesOrNo } from './kind';

interface LookedUp {
  kind: string;
  name: string;
  location?: 'Hub' | 'Cluster';
}

type Kustomization = KubeObject<
  {
    path?: string;
    prune?: boolean;
    wait?: boolean;
    targetNamespace?: string;
    sourceRef?: { kind: string; name: string; namespace?: string };
    decryption?: { secretRef?: { name: string }; serviceAccountName?: string };
  },
  { lookups?: LookedUp[]; decryptedWith?: string[] }
>;

/** Whose keys it was decrypted with, where they are, and which of them opened something; nothing where it asks for no decryption. */
function decryption({ spec, status }: Kustomization): Fact[] {
  if (!spec?.decryption) return [];
  const { secretRef, serviceAccountName: account } = spec.decryption;
  const parts = [];
  if (secretRef !== undefined) {
    const name = secretRef.name;
    const found = status?.lookups?.find((one) => one.kind === 'Secret' && one.name === name)?.location;
    const where = { Hub: ' on the hub', Cluster: ' in the cluster' };
    parts.push(`Secret ${name}${found ? where[found] : ''}`);
  }
  if (account !== undefined) parts.push(`key services, asked by the hub as ServiceAccount ${account}`);
  const whose = parts.length > 0 ? parts.join(' and ') : undefined;
  const facts: Fact[] = [['Decrypted with', whose]];
  const keys = status?.decryptedWith ?? [];
  if (keys.length > 0) facts.push(['Decryption keys', keys.join(', ')]);
  return facts;
}

export const kustomization: ApplierKind = {
  kind: 'Kustomization',
  api: 'kustomize.toolkit.fluxcd.io/v1',
  plural: 'kustomizations',
  namespaced: true,
  sources: (object) => {
    const { spec, metadata } = object as Kustomization;
    const source = spec?.sourceRef;
    if (!source) return [];
    return [
      { kind: source.kind, namespace: source.namespace ?? metadata.namespace ?? '', name: source.name },
    ];
  },
  details: (object) => {
    const { spec = {} } = object as Kustomization;
    return [
      ['Path', spec.path],
      ['Target namespace', spec.targetNamespace],
      ['Prunes', yesOrNo(spec.prune)],
      ['Waits for health', yesOrNo(spec.wait)],
      ...decryption(object as Kustomization),
    ];
  },
};
