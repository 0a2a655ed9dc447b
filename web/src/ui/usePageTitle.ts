import { useEffect } from 'react';

/** The window's title, which is also what a screen reader says of a page and what a bookmark is called. */
export function usePageTitle(title: string): void {
  useEffect(() => {
    document.title = `${title.slice(0, 200)} · Roadstead`;
  }, [title]);
}
