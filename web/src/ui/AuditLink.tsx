/** Leads from an object to what the audit log has of it, for those who may read that. */
import type { ReactNode } from 'react';
import { Link } from 'react-router';

import type { ObjectId } from '../api/kinds';
import { useMayReadAudit } from '../api/may';
import { auditOf } from './links';

export function AuditLink({ id }: { id: ObjectId }): ReactNode {
  if (!useMayReadAudit()) return null;
  return (
    <p>
      <Link to={auditOf(id)}>Who changed it: the audit log</Link>
    </p>
  );
}
