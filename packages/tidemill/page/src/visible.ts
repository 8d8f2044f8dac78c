/** What a view does again and again while somebody can see it. */

import { useEffect, useRef, useState } from "preact/hooks";

/**
 * Call a function now, then each time `seconds` after its end, only while the page is visible. Null stops it.
 */
export function useEvery(seconds: number | null, act: (signal: AbortSignal) => Promise<void>, key: unknown = null): void {
  const latest = useRef(act);
  latest.current = act;
  useEffect(() => {
    if (seconds === null) return undefined;
    const control = new AbortController();
    let timer: number | undefined;
    let isRunning = false;
    const run = async (): Promise<void> => {
      if (isRunning || document.hidden || control.signal.aborted) return;
      isRunning = true;
      window.clearTimeout(timer);
      try {
        await latest.current(control.signal);
      } finally {
        isRunning = false;
        if (!control.signal.aborted) timer = window.setTimeout(() => void run(), seconds * 1000);
      }
    };
    const show = (): void => void run();
    document.addEventListener("visibilitychange", show);
    void run();
    return () => {
      control.abort();
      window.clearTimeout(timer);
      document.removeEventListener("visibilitychange", show);
    };
  }, [seconds, key]);
}

/** The time in seconds since the epoch, which goes on each second while `isOn`. */
export function useNow(isOn: boolean): number {
  const [now, setNow] = useState(() => Date.now() / 1000);
  useEvery(isOn ? 1 : null, async () => setNow(Date.now() / 1000));
  return now;
}
