/** The few icons that there are: drawn here, in the text's colour, and hidden from screen readers, since words go with them. */
import type { ReactNode } from 'react';

const PATHS = {
  ok: 'M5 10.5l3.2 3.2L15 7',
  failing: 'M6 6l8 8M14 6l-8 8',
  progressing: 'M10 4a6 6 0 1 0 6 6',
  waiting: 'M10 3.2a6.8 6.8 0 1 0 0 13.6 6.8 6.8 0 0 0 0-13.6M10 6.4V10l2.4 1.6',
  suspended: 'M7.5 5.5v9M12.5 5.5v9',
  unknown: 'M7.8 7.7a2.3 2.3 0 1 1 3.4 2c-.8.5-1.2 1-1.2 1.9M10 14.3v.2',
  away: 'M4 4l12 12M7.5 7.7A7 7 0 0 0 4 9.8M16 9.8a7.4 7.4 0 0 0-4.5-2.6M10 14.5v.1M7.6 12.3a3.2 3.2 0 0 1 2-.9',
  search: 'M9 4a5 5 0 1 0 0 10A5 5 0 0 0 9 4zM12.7 12.7L16.5 16.5',
  chevron: 'M8 5.5l4.5 4.5L8 14.5',
  sun: 'M10 6.8a3.2 3.2 0 1 0 0 6.4 3.2 3.2 0 0 0 0-6.4zM10 2.5v1.7M10 15.8v1.7M2.5 10h1.7M15.8 10h1.7M4.7 4.7l1.2 1.2M14.1 14.1l1.2 1.2M15.3 4.7l-1.2 1.2M5.9 14.1l-1.2 1.2',
  moon: 'M15.5 12.3A6.5 6.5 0 0 1 7.7 4.5a6.5 6.5 0 1 0 7.8 7.8z',
  screen: 'M3.5 4.5h13v9h-13zM7.5 16.5h5M10 13.5v3',
  external: 'M8 5H5v10h10v-3M11 4.5h4.5V9M15 5l-6 6',
  leave: 'M11.5 5V4H4.5v12h7v-1M8.5 10h8M13.5 7l3 3-3 3',
  skipped: 'M5 10h10',
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }): ReactNode {
  return (
    <svg className={`icon icon-${name}`} viewBox="0 0 20 20" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} />
    </svg>
  );
}
