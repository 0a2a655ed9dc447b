import type { ReactNode } from 'react';
import { Link } from 'react-router';

import { Empty } from '../ui/States';
import { usePageTitle } from '../ui/usePageTitle';

export default function NotFoundPage(): ReactNode {
  usePageTitle('No such page');
  return (
    <div className="page">
      <Empty page title="There is no such page">
        <p>
          The address may hold a slip. <Link to="/">To the fleet</Link>
        </p>
      </Empty>
    </div>
  );
}
