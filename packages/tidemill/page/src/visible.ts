/** What a view does again and again while somebody can see it. */

import { useEffect, useRef, useState } from "preact/hooks";

/** Reasons that come soon after one another are one reason. */
const SOON_MS = 200;

export interface Loop {
  /** Act again soon, also if it is at work now. */
  soon: () => void;
  end: () => void;
}

/**
 * Call `act` now, and again after the milliseconds that it returns, or when `soon` is called; never twice at once, and
 * only while the page is visible. The signal says when what it finds is of no use any more.
 */
export function loopOf(act: (signal: AbortSignal) => Promise<number | undefined>): Loop {
  const control = new AbortController();
  let timer = 0;
  let isBusy = false;
  let isDue = false;
  const wait = (milliseconds: number): void => {
    window.clearTimeout(timer);
    timer = window.setTimeout(() => void run(), milliseconds);
  };
  const run = async (): Promise<void> => {
    isDue = document.hidden;
    if (isDue) return;
    window.clearTimeout(timer);
    isBusy = true;
    const next = await act(control.signal);
    isBusy = false;
    if (control.signal.aborted) return;
    if (isDue) wait(SOON_MS);
    else if (next !== undefined) wait(next);
  };
  const soon = (): void => {
    if (isDue) return;
    isDue = true;
    if (!isBusy) wait(SOON_MS);
  };
  const show = (): void => {
    if (isDue && !isBusy && !document.hidden) void run();
  };
  const end = (): void => {
    control.abort();
    window.clearTimeout(timer);
    document.removeEventListener("visibilitychange", show);
  };
  document.addEventListener("visibilitychange", show);
  void run();
  return { soon, end };
}

/** Call a function now, and again after the milliseconds that it returns, as `loopOf` does; another key begins anew. */
export function useEvery(act: (signal: AbortSignal) => Promise<number | undefined>, key: unknown = null): void {
  const latest = useRef(act);
  latest.current = act;
  useEffect(() => loopOf((signal) => latest.current(signal)).end, [key]);
}

/** The time in seconds since the epoch, which goes on each second while `isOn`. */
export function useNow(isOn: boolean): number {
  const [now, setNow] = useState(() => Date.now() / 1000);
  const tick = async (): Promise<number | undefined> => {
    if (!isOn) return undefined;
    setNow(Date.now() / 1000);
    return 1000;
  };
  useEvery(tick, isOn);
  return now;
}
