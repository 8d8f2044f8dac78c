/** What a view shows of the service: loaded, and loaded again when it has changed. */

import { useCallback, useEffect, useRef, useState } from "preact/hooks";

import { onChange, type Interest } from "./changes";

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

/** Changes that come soon after one another are one reason to load again. */
const SOON_MS = 200;
const HIDDEN_MS = 1000;
const FAILED_MS = 5000;

/**
 * Load what `key` names, and again as `renewal` says; never twice at once, and not while the page is in the background. A
 * function is the `every` of a renewal.
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
    const succeed = (value: T): number | undefined => {
      setState({ key, value });
      return current.current.renewal.every?.(value);
    };
    const fail = (error: unknown): number | undefined => {
      setState((before) => ({ ...(before.key === key ? before : { key }), error }));
      const { on, every } = current.current.renewal;
      return on || every ? FAILED_MS : undefined;
    };
    const loop = loopOf((signal) => current.current.load(signal).then(succeed, fail));
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

/** Call `act` now, and again after the milliseconds that it returns, or when `soon` is called. */
function loopOf(act: (signal: AbortSignal) => Promise<number | undefined>): { soon: () => void; end: () => void } {
  const controller = new AbortController();
  let timer = 0;
  let isBusy = false;
  let isSoon = false;
  const wait = (ms: number): void => {
    window.clearTimeout(timer);
    timer = window.setTimeout(() => void run(), ms);
  };
  const run = async (): Promise<void> => {
    if (document.hidden) return wait(HIDDEN_MS);
    isBusy = true;
    isSoon = false;
    const next = await act(controller.signal);
    isBusy = false;
    if (controller.signal.aborted) return;
    if (isSoon) wait(SOON_MS);
    else if (next !== undefined) wait(next);
  };
  const soon = (): void => {
    if (isSoon) return;
    isSoon = true;
    if (!isBusy) wait(SOON_MS);
  };
  void run();
  const end = (): void => {
    controller.abort();
    window.clearTimeout(timer);
  };
  return { soon, end };
}
