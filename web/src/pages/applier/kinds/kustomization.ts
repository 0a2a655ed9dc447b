/** Kustomizations of Flux: a path of one source, built by kustomize. */
import type { KubeObject } from '../../../api/kinds';
import type { ApplierKind } from './kind';
import { yesOrNo } from './kind';

type Kustomization = KubeObject<{
  path?: string;
  prune?: boolean;
  wait?: boolean;
  targetNamespace?: string;
  sourceRef?: { kind: string; name: string; namespace?: string };
}>;

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
    ];
  },
};
