/** What a view shows of the service: loaded, and loaded again while it may change. */

import { useCallback, useEffect, useRef, useState } from "preact/hooks";

export interface Loaded<T> {
  /** Undefined before the first answer; kept while it is loaded again. */
  value: T | undefined;
  /** Why the last request failed; undefined after one that succeeded. */
  error: unknown;
  /** Load again, e.g. after an operation that changes something. */
  reload: () => void;
}

/**
 * Load what `key` names, and load again after `again(value)` milliseconds until that is undefined.
 *
 * Nothing is loaded while the page is in the background, nor before the last answer has arrived.
 */
export function useLoaded<T>(key: string, load: (signal: AbortSignal) => Promise<T>, again?: (value: T) => number | undefined): Loaded<T> {
  const [state, setState] = useState<{ key: string; value?: T; error?: unknown }>({ key });
  const [round, setRound] = useState(0);
  const current = useRef({ load, again });
  current.current = { load, again };

  useEffect(() => {
    const controller = new AbortController();
    let timer = 0;
    const wait = (ms: number | undefined): void => {
      if (ms !== undefined && !controller.signal.aborted) timer = window.setTimeout(run, ms);
    };
    const run = (): void => {
      if (document.hidden) return wait(HIDDEN_MS);
      current.current.load(controller.signal).then(
        (value) => {
          if (controller.signal.aborted) return;
          setState({ key, value });
          wait(current.current.again?.(value));
        },
        (error: unknown) => {
          if (controller.signal.aborted) return;
          setState((before) => ({ ...(before.key === key ? before : { key }), error }));
          if (current.current.again) wait(FAILED_MS);
        },
      );
    };
    run();
    return () => {
      controller.abort();
      window.clearTimeout(timer);
    };
  }, [key, round]);

  const reload = useCallback(() => setRound((each) => each + 1), []);
  const own = state.key === key ? state : undefined;
  return { value: own?.value, error: own?.error, reload };
}

const HIDDEN_MS = 1000;
const FAILED_MS = 5000;
