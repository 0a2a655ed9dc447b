/** What the dashboard knows of one kind of applier, beyond what it shows of all of them. */
import type { Applier, ObjectId, Resource } from '../../../api/kinds';

/** A fact with its title; what is undefined is shown as not given. */
export type Fact = readonly [title: string, value: string | undefined];

export interface ApplierKind extends Resource {
  /** The sources that its spec names. Without it, the hub is asked for them. */
  sources?: (object: Applier) => ObjectId[];
  /** The facts of its spec that other kinds do not have. */
  details?: (object: Applier) => readonly Fact[];
}

export function yesOrNo(value: boolean | undefined): string {
  return value === true ? 'yes' : 'no';
}
