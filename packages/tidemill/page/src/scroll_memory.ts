/** How far something was scrolled, by the entries of the history: its ways back and forward lead to the same place. */

import { useLayoutEffect } from "preact/hooks";

import { entryName } from "./location";

const MOST = 500;
const PAGE = "page";
const INTENTS = ["wheel", "keydown", "pointerdown"] as const;
const kept = new Map<string, number>();

export function keepScroll(name: string, top: number): void {
  const key = `${entryName()} ${name}`;
  kept.delete(key);
  kept.set(key, top);
  for (const oldest of kept.keys()) {
    if (kept.size <= MOST) break;
    kept.delete(oldest);
  }
}

/** How far something was scrolled when the current entry was left; 0 if it is a new one. */
export function keptScroll(name: string): number {
  return kept.get(`${entryName()} ${name}`) ?? 0;
}

/** Scroll the whole page to where an entry was left, as soon as it is long enough again, unless the user acts first. */
export function useKeptScroll(entry: string): void {
  useLayoutEffect(() => {
    window.history.scrollRestoration = "manual";
    let wanted: number | null = keptScroll(PAGE);
    const restore = (): void => {
      if (wanted === null) return;
      window.scrollTo(0, wanted);
      if (window.scrollY >= wanted - 1) wanted = null;
    };
    const giveUp = (): void => void (wanted = null);
    const keep = (): void => {
      if (wanted === null) keepScroll(PAGE, window.scrollY);
    };
    const observer = new ResizeObserver(restore);
    observer.observe(document.body);
    window.addEventListener("scroll", keep);
    for (const each of INTENTS) window.addEventListener(each, giveUp);
    restore();
    return () => {
      observer.disconnect();
      window.removeEventListener("scroll", keep);
      for (const each of INTENTS) window.removeEventListener(each, giveUp);
    };
  }, [entry]);
}
