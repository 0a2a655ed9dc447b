/** The way from the source to the objects, drawn. */
import type { ReactNode } from 'react';
import { Link } from 'react-router';

import { count } from '../../lib/words';
import { Status } from '../../ui/Status';
import { Message, Name } from '../../ui/Text';
import { Age } from '../../ui/Time';
import type { StageView } from './stages';

export function Pipeline({
  stages,
  said,
  objects,
  to,
}: {
  stages: readonly StageView[];
  /** What the page says already: no stage says it again. */
  said: string;
  objects: number;
  to: string;
}): ReactNode {
  return (
    <section aria-labelledby="way">
      <h2 id="way" className="unseen">
        From source to objects
      </h2>
      <ol className="pipeline">
        {stages.map((stage) => (
          <li key={stage.id} className={`stage is-${stage.state}`}>
            <span className="stage-title">
              {stage.to ? <Link to={stage.to}>{stage.title}</Link> : stage.title}
            </span>
            <Status state={stage.state} word={WORDS[stage.state]} />
            <span className="stage-detail">
              <Name>{stage.detail}</Name>
            </span>
            <span className="dim stage-time">
              {stage.took ?? (stage.at ? <Age at={stage.at} suffix=" ago" /> : '')}
            </span>
          </li>
        ))}
        <li className="stage is-end">
          <span className="stage-title">
            <Link to={to}>Objects</Link>
          </span>
          <span className="stage-count">{objects.toLocaleString('en')}</span>
          <span className="stage-detail">{count(objects, 'object').replace(/^\S+ /, '')} owned</span>
        </li>
      </ol>
      {stages
        .filter((stage) => stage.why && stage.why !== said)
        .map((stage) => (
          <div key={stage.id} className={`notice is-${stage.state === 'failing' ? 'failing' : 'warning'}`}>
            <p>
              <strong>{stage.title}</strong>
            </p>
            <Message text={stage.why ?? ''} />
          </div>
        ))}
    </section>
  );
}

const WORDS = {
  ok: 'Done',
  failing: 'Failed',
  progressing: 'Under way',
  waiting: 'Waiting',
  suspended: 'Suspended',
  unknown: 'Unknown',
  away: 'Away',
  skipped: 'Skipped',
};
