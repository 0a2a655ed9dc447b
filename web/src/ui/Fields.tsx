/** Filters: a field to type in, choices, and states to choose from. */
import type { ReactNode } from 'react';
import { useEffect, useId, useState } from 'react';

import { Icon } from './icons';
import type { State } from './Status';
import { Status } from './Status';

const PAUSE = 250;

/** A text field that tells its value when the typing pauses. */
export function SearchField({
  label,
  value,
  onChange,
  suggestions,
  focused = false,
}: {
  label: string;
  value: string;
  onChange: (value: string) => void;
  suggestions?: readonly string[];
  /** Whether the page is there to type in. */
  focused?: boolean;
}): ReactNode {
  const list = useId();
  const [text, setText] = useState(value);
  const [told, setTold] = useState(value);
  // It was changed from elsewhere: by going back, or by a link.
  if (told !== value) {
    setTold(value);
    setText(value);
  }
  useEffect(() => {
    if (text === told) return undefined;
    const timer = setTimeout(() => {
      setTold(text);
      onChange(text);
    }, PAUSE);
    return () => clearTimeout(timer);
  }, [text, told, onChange]);
  return (
    <label className="field search">
      <span className="unseen">{label}</span>
      <Icon name="search" />
      <input
        type="search"
        value={text}
        placeholder={label}
        maxLength={253}
        onChange={(event) => setText(event.target.value)}
        list={suggestions ? list : undefined}
        spellCheck={false}
        autoComplete="off"
        // eslint-disable-next-line jsx-a11y/no-autofocus -- on the page that is there to type in
        autoFocus={focused}
      />
      {suggestions && (
        <datalist id={list}>
          {suggestions.map((suggestion) => (
            <option key={suggestion} value={suggestion} />
          ))}
        </datalist>
      )}
    </label>
  );
}

export function Choice({
  label,
  value,
  onChange,
  options,
}: {
  label: string;
  value: string;
  onChange: (value: string) => void;
  options: readonly (readonly [value: string, title: string])[];
}): ReactNode {
  const known = options.some(([option]) => option === value);
  return (
    <label className="field">
      <span>{label}</span>
      <select value={value} onChange={(event) => onChange(event.target.value)}>
        {options.map(([option, title]) => (
          <option key={option} value={option}>
            {title}
          </option>
        ))}
        {!known && <option value={value}>{value}</option>}
      </select>
    </label>
  );
}

export interface Chip {
  value: string;
  title: string;
  count?: number;
  state?: State;
}

/** States with how many are in each, of which one may be chosen; choosing it again chooses all. */
export function Chips({
  label,
  chips,
  value,
  onChange,
}: {
  label: string;
  chips: readonly Chip[];
  value: string;
  onChange: (value: string) => void;
}): ReactNode {
  return (
    <div className="chips" role="group" aria-label={label}>
      {chips.map((chip) => (
        <button
          key={chip.value}
          type="button"
          className="chip"
          aria-pressed={value === chip.value}
          onClick={() => onChange(value === chip.value ? '' : chip.value)}
        >
          {chip.state ? <Status state={chip.state} word={chip.title} /> : chip.title}
          {chip.count !== undefined && <span className="count">{chip.count.toLocaleString('en')}</span>}
        </button>
      ))}
    </div>
  );
}
