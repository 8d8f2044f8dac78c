/**
 * What has changed, by one waiting request for all views of this window. While the window is hidden there is none, and
 * afterwards every listener hears that anything may have changed.
 */

import { call, currentSession, ServiceError } from "./service";

export type Kind =
  | "training-job"
  | "processing-job"
  | "transform-job"
  | "hyper-parameter-tuning-job"
  | "pipeline"
  | "pipeline-execution"
  | "endpoint"
  | "endpoint-config"
  | "model"
  | "model-package"
  | "model-package-group";

/** What a listener looks at: some resources of a kind, or all of them. */
export interface Interest {
  kind: Kind;
  names?: readonly string[];
}

/** Names that have changed by kind; null if anything may have changed. */
export type Changed = ReadonlyMap<Kind, readonly string[]> | null;

interface Listener {
  interests: readonly Interest[];
  hear: (changed: Changed) => void;
}

interface Answer {
  Token: string;
  Changes?: { Kind: Kind; Names?: string[] }[];
  Everything?: boolean;
}

const PAUSE_MS = 2000;
const LONGEST_PAUSE_MS = 30_000;

const listeners = new Set<Listener>();
let running: AbortController | null = null;
let token: string | null = null;

/**
 * Call `hear` when something changes that the listener looks at. Read the state after this call: what changes from
 * then on is heard. Returns what ends it.
 */
export function onChange(interests: readonly Interest[], hear: (changed: Changed) => void): () => void {
  const listener = { interests, hear };
  listeners.add(listener);
  restart();
  return () => {
    listeners.delete(listener);
    restart();
  };
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden) token = null;
  restart();
});

/** Ask again, with what is looked at now; changes since the last answer are still heard. */
function restart(): void {
  running?.abort();
  running = null;
  if (document.hidden || listeners.size === 0) {
    token = null;
    return;
  }
  running = new AbortController();
  // The listeners of a view come one after the other: they become one request.
  const { signal } = running;
  queueMicrotask(() => void follow(signal));
}

async function follow(signal: AbortSignal): Promise<void> {
  let pause = PAUSE_MS;
  while (!signal.aborted) {
    try {
      await step(signal);
      pause = PAUSE_MS;
    } catch (error) {
      if (signal.aborted || (error instanceof ServiceError && error.code === "PageSessionEnded")) return;
      await paused(pause, signal);
      pause = Math.min(LONGEST_PAUSE_MS, pause * 2);
    }
  }
}

async function step(signal: AbortSignal): Promise<void> {
  if (!currentSession()) return paused(PAUSE_MS, signal);
  const isFirst = token === null;
  const input = { Interests: wanted(), ...(token === null ? {} : { Token: token }) };
  const answer = await call<Answer>("tidemill", "WaitForChanges", input, { signal });
  if (signal.aborted) return;
  token = answer.Token;
  if (isFirst || answer.Everything) tell(null);
  else if (answer.Changes?.length) tell(new Map(answer.Changes.map((each) => [each.Kind, each.Names ?? []])));
}

function wanted(): { Kind: Kind; Names?: string[] }[] {
  const names = new Map<Kind, Set<string> | null>();
  for (const { interests } of listeners) {
    for (const { kind, names: some } of interests) {
      const known = names.get(kind);
      if (!some || known === null) names.set(kind, null);
      else names.set(kind, new Set([...(known ?? []), ...some]));
    }
  }
  return [...names].map(([Kind, some]) => (some && some.size <= 1000 ? { Kind, Names: [...some] } : { Kind }));
}

function tell(changed: Changed): void {
  for (const { interests, hear } of [...listeners]) {
    const heard = changed && seenBy(interests, changed);
    if (heard === null || heard.size > 0) hear(heard);
  }
}

function seenBy(interests: readonly Interest[], changed: ReadonlyMap<Kind, readonly string[]>): Map<Kind, string[]> {
  const heard = new Map<Kind, string[]>();
  for (const { kind, names } of interests) {
    const found = (changed.get(kind) ?? []).filter((name) => !names || names.includes(name));
    if (found.length > 0) heard.set(kind, [...(heard.get(kind) ?? []), ...found]);
  }
  return heard;
}

function paused(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const end = (): void => {
      window.clearTimeout(timer);
      signal.removeEventListener("abort", end);
      resolve();
    };
    const timer = window.setTimeout(end, milliseconds);
    signal.addEventListener("abort", end);
  });
}
