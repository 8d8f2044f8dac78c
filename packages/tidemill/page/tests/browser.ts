/** What the page's modules use of a browser, for tests without one. Import it first. */

export interface Asked {
  operation: string;
  input: Record<string, unknown>;
}

const stored = new Map<string, string>();
export const storage = {
  getItem: (name: string): string | null => stored.get(name) ?? null,
  setItem: (name: string, value: string): void => void stored.set(name, value),
  removeItem: (name: string): void => void stored.delete(name),
};
export const page = Object.assign(new EventTarget(), { hidden: false });
Object.assign(globalThis, {
  window: Object.assign(new EventTarget(), {
    setTimeout: (act: () => void, milliseconds: number) => setTimeout(act, milliseconds),
    clearTimeout: (timer: number) => clearTimeout(timer),
    location: { pathname: "/_tidemill/jobs", search: "", hash: "" },
    history: { state: null },
  }),
  document: page,
  localStorage: storage,
});

/** Answer the requests of JSON services by a function; an Error is no answer, a number a status of HTTP. */
export function serve(answer: (asked: Asked) => unknown): void {
  globalThis.fetch = async (_, init) => {
    const target = new Headers(init?.headers).get("x-amz-target") ?? "";
    const found = await answer({ operation: target.split(".")[1] ?? "", input: JSON.parse(String(init?.body ?? "{}")) as Asked["input"] });
    if (found instanceof Error) throw found;
    if (typeof found === "number") return new Response(JSON.stringify({ __type: "InternalFailure" }), { status: found });
    return found instanceof Response ? found : new Response(JSON.stringify(found));
  };
}

/** Wait until all that can go on without time has gone on. */
export async function settled(): Promise<void> {
  for (let turn = 0; turn < 50; turn += 1) await new Promise((resolve) => setImmediate(resolve));
}
