/** Light, dark, or as the system is. The choice is this browser's. */
export type Theme = 'system' | 'light' | 'dark';

const KEY = 'roadstead.theme';
export const THEMES: readonly Theme[] = ['system', 'light', 'dark'];

export function theme(): Theme {
  const held = document.documentElement.dataset.theme;
  return held === 'light' || held === 'dark' ? held : 'system';
}

export function setTheme(wanted: Theme): void {
  if (wanted === 'system') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = wanted;
  try {
    localStorage.setItem(KEY, wanted);
  } catch {
    // It holds for this page.
  }
}

export function restoreTheme(): void {
  try {
    const kept = localStorage.getItem(KEY);
    if (kept === 'light' || kept === 'dark') setTheme(kept);
  } catch {
    // As the system is.
  }
}
