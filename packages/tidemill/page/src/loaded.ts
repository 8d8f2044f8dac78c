/** What a view shows of the service: loaded, and loaded again when it has changed. */

import { useCallback, useEffect, useRef, useState } from "preact/hooks";

import { onChange, type Interest } from "./changes";
import { isRefusal } from "./service";
import { loopOf } from "./visible";

export interface Loaded<T> {
  /** Undefined before the first answer; kept while it is loaded again. */
  value: T | undefined;
  /** Why the last request failed; undefined after one that succeeded. */
  error: unknown;
  /** Load again, e.g. after an operation that changes something. */
  reload: () => void;
}

/** When to load again. */
export interface Renewal<T> {
  /** The resources on which the value depends; those that the value names are known only with it. */
  on?: (value: T | undefined) => readonly Interest[];
  /** Milliseconds after which what is no resource, e.g. a log, is looked at again; undefined for never. */
  every?: (value: T) => number | undefined;
}

const FAILED_MS = 5000;

/**
 * Load what `key` names, and again as `renewal` says; never twice at once, and not while the page is in the background. A
 * request that the service did not answer is sent again. A function is the `every` of a renewal.
 */
export function useLoaded<T>(
  key: string,
  load: (signal: AbortSignal) => Promise<T>,
  given: Renewal<T> | Renewal<T>["every"] = {},
): Loaded<T> {
  const renewal: Renewal<T> = typeof given === "function" ? { every: given } : given;
  const [state, setState] = useState<{ key: string; value?: T; error?: unknown }>({ key });
  const [round, setRound] = useState(0);
  const current = useRef({ load, renewal });
  current.current = { load, renewal };
  const renew = useRef<() => void>(() => undefined);

  useEffect(() => {
    const attempt = async (signal: AbortSignal): Promise<number | undefined> => {
      const { on, every } = current.current.renewal;
      try {
        const value = await current.current.load(signal);
        // What comes after the next request has begun would replace a newer state.
        if (signal.aborted) return undefined;
        setState({ key, value });
        return current.current.renewal.every?.(value);
      } catch (error) {
        if (signal.aborted) return undefined;
        setState((before) => ({ ...(before.key === key ? before : { key }), error }));
        return on || every || !isRefusal(error) ? FAILED_MS : undefined;
      }
    };
    const loop = loopOf(attempt);
    renew.current = loop.soon;
    return loop.end;
  }, [key, round]);

  const own = state.key === key ? state : undefined;
  const interests = renewal.on?.(own?.value) ?? [];
  useEffect(
    () => (interests.length ? onChange(interests, () => renew.current()) : undefined),
    [JSON.stringify(interests)],
  );
  const reload = useCallback(() => setRound((each) => each + 1), []);
  return { value: own?.value, error: own?.error, reload };
}
