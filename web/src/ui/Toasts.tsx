/** What came of an action, said at the edge of the page for a while. */
import type { ReactNode } from 'react';
import { createContext, use, useCallback, useMemo, useRef, useState } from 'react';

import { Icon } from './icons';

interface Toast {
  id: number;
  good: boolean;
  text: string;
}

type Say = (text: string, good?: boolean) => void;

const ToastContext = createContext<Say>(() => undefined);

const SHOWN = 8_000;
const MOST = 4;

export function useToast(): Say {
  return use(ToastContext);
}

export function ToastProvider({ children }: { children: ReactNode }): ReactNode {
  const [toasts, setToasts] = useState<readonly Toast[]>([]);
  const last = useRef(0);
  const drop = useCallback((id: number) => {
    setToasts((held) => held.filter((toast) => toast.id !== id));
  }, []);
  const say = useCallback<Say>(
    (text, good = true) => {
      last.current += 1;
      const id = last.current;
      setToasts((held) => [...held, { id, good, text: text.slice(0, 500) }].slice(-MOST));
      setTimeout(() => drop(id), SHOWN);
    },
    [drop],
  );
  const shown = useMemo(() => toasts, [toasts]);
  return (
    <ToastContext value={say}>
      {children}
      <div className="toasts" role="status" aria-live="polite">
        {shown.map((toast) => (
          <div key={toast.id} className={`toast ${toast.good ? 'is-ok' : 'is-failing'}`}>
            <Icon name={toast.good ? 'ok' : 'failing'} />
            <p dir="auto">{toast.text}</p>
            <button type="button" className="iconic" aria-label="Dismiss" onClick={() => drop(toast.id)}>
              <Icon name="failing" />
            </button>
          </div>
        ))}
      </div>
    </ToastContext>
  );
}
