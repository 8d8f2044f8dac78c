import { useState } from "preact/hooks";

import { useLoaded, type Loaded, type Renewal } from "./loaded";
import { call } from "./service";

export interface Page<T> {
  rows: T[];
  /** Undefined behind the last row. */
  token: string | undefined;
}

const PAGE = 50;

/** The first rows of a list, which are shown while more of them are loaded. */
export function useRows<T, P extends Page<T>>(
  key: string,
  load: (limit: number, signal: AbortSignal) => Promise<P>,
  renewal: Renewal<P> = {},
): Loaded<P> & { more: () => void } {
  const [limit, setLimit] = useState(PAGE);
  const loaded = useLoaded(key, (signal) => load(limit, signal), renewal);
  const more = (): void => {
    setLimit(limit + PAGE);
    loaded.reload();
  };
  return { ...loaded, more };
}

/** Return the first rows of a list of SageMaker, from as many of its pages as they take. */
export async function rowsUpTo<T>(operation: string, member: string, input: object, limit: number, signal: AbortSignal): Promise<Page<T>> {
  const rows: T[] = [];
  let token: string | undefined;
  do {
    const request = { ...input, MaxResults: PAGE, ...(token ? { NextToken: token } : {}) };
    const answer = await call<Record<string, T[]> & { NextToken?: string }>("sagemaker", operation, request, { signal });
    rows.push(...(answer[member] ?? []));
    token = answer.NextToken as string | undefined;
  } while (token && rows.length < limit);
  return { rows, token };
}
