/**
 * What the user may do, asked before it is tried. The hub decides in any case: where it cannot be asked, or has not answered yet,
 * nothing is held back here.
 */
import { queryOptions, useQueries, useQuery } from '@tanstack/react-query';

import { post } from './client';
import { HubFailure } from './errors';
import type { ObjectId } from './kinds';
import { resourceOf } from './kinds';
import { clusters } from './queries';

/** A question, as SelfSubjectAccessReview has it. */
type Question =
  | {
      resourceAttributes: {
        verb: string;
        group: string;
        resource: string;
        namespace?: string;
        name?: string;
      };
    }
  | { nonResourceAttributes: { verb: string; path: string } };

interface Review {
  status?: { allowed?: boolean; reason?: string };
}

/** Whether the user may; `why` not, in the hub’s words. */
export interface May {
  allowed: boolean;
  why: string;
}

const YES: May = { allowed: true, why: '' };

/** Which right is missing: for what no role gives, the hub has no reason of its own, as Kubernetes has none. */
function needed(spec: Question): string {
  if ('nonResourceAttributes' in spec) {
    const { verb, path } = spec.nonResourceAttributes;
    return `it needs the right to ${verb} ${path}`;
  }
  const { verb, group, resource, namespace, name } = spec.resourceAttributes;
  const what = group ? `${resource}.${group}` : resource;
  const which = name ? ` "${name}"` : '';
  return `it needs the right to ${verb} ${what}${which}${namespace ? ` in the namespace ${namespace}` : ''}`;
}

const review = (spec: Question) =>
  queryOptions({
    queryKey: ['may', spec],
    queryFn: async (): Promise<May> => {
      const { status } = await post<Review>('/apis/authorization.k8s.io/v1/selfsubjectaccessreviews', {
        apiVersion: 'authorization.k8s.io/v1',
        kind: 'SelfSubjectAccessReview',
        spec,
      });
      const why = status?.reason ?? '';
      return { allowed: status?.allowed !== false, why: why === '' ? needed(spec) : why };
    },
  });

function asks(verb: string, { kind, namespace, name }: ObjectId): Question | null {
  const resource = resourceOf(kind);
  if (!resource) return null;
  const group = resource.api.split('/', 1)[0] ?? '';
  return { resourceAttributes: { verb, group, resource: resource.plural, namespace, name } };
}

function useMay(verb: string, ids: readonly ObjectId[]): May {
  const questions = ids.map((id) => asks(verb, id)).filter((question) => question !== null);
  const answers = useQueries({ queries: questions.map(review) });
  return answers.map(({ data }) => data).find((may) => may && !may.allowed) ?? YES;
}

/** Whether the user may change all of these objects; the first that they may not says why. */
export const useMayChange = (ids: readonly ObjectId[]): May => useMay('patch', ids);

/** Whether the user may delete an object. */
export const useMayDelete = (id: ObjectId): May => useMay('delete', [id]);

/** Whether the user may make an object of this kind in a namespace; in none that is not named. */
export function useMayCreate(kind: string, namespace: string): May {
  return useMay('create', namespace === '' ? [] : [{ kind, namespace, name: '' }]);
}

/** Whether the user may change what appliers with `spec.delegation` do; of others, name none. */
export const useMayDelegate = (ids: readonly ObjectId[]): May => useMay('delegate', ids);

/** Whether the user may read the audit log. */
export function useMayReadAudit(): boolean {
  const { data } = useQuery(review({ nonResourceAttributes: { verb: 'get', path: '/fleet/v1/audit' } }));
  return data?.allowed ?? true;
}

/** Whether the user may see any cluster: who may not list them may see some by their names. */
export function useMaySeeClusters(): boolean {
  const list = { verb: 'list', group: 'fleet.roadstead.dev', resource: 'clusters' };
  const { data } = useQuery(review({ resourceAttributes: list }));
  const { error } = useQuery({ ...clusters, enabled: data?.allowed === false });
  return !(error instanceof HubFailure && error.problem === 'forbidden');
}
