/** Requests to models, answered at once or, by an asynchronous endpoint, as an object in S3. */

import { listFolder, placeOf, readObject, type Place } from "./objects";
import { invoke, invokeAsync, s3, type InvokeOptions } from "./service";

export interface Answer {
  contentType: string;
  /** Name of the variant that answered; empty if that is not known. */
  variant: string;
  bytes: Uint8Array;
  /** Milliseconds that this browser waited. */
  milliseconds: number;
  /** Where an asynchronous endpoint has stored it. */
  location?: { bucket: string; key: string };
}

const ANSWER_MAX_BYTES = 16 * 1024 * 1024;
const LOOK_MS = 1000;

export async function sendRequest(endpoint: string, body: string, options: InvokeOptions): Promise<Answer> {
  const begin = performance.now();
  const response = await invoke(endpoint, body, options);
  const bytes = new Uint8Array(await response.arrayBuffer());
  return {
    contentType: response.headers.get("content-type") ?? "",
    variant: response.headers.get("x-amzn-invoked-production-variant") ?? "",
    bytes,
    milliseconds: performance.now() - begin,
  };
}

/** Return a function that sends requests to an asynchronous endpoint, which stores its answers below `output`. */
export function sendAsync(output: string) {
  return async (endpoint: string, body: string, options: InvokeOptions): Promise<Answer> => {
    const begin = performance.now();
    const { bucket, key } = placeOf(output) ?? { bucket: "", key: "" };
    const input = `${key ? `${key.replace(/\/$/, "")}/` : ""}requests/${crypto.randomUUID()}`;
    await s3("PUT", bucket, input, {}, new Blob([body], { type: options.contentType ?? "" }), options);
    const accepted = await invokeAsync(endpoint, `s3://${bucket}/${input}`, options);
    const places = [accepted.OutputLocation, accepted.FailureLocation].map(placeOf).filter((each) => each !== undefined);
    const location = await firstStored(places, options.signal);
    const bytes = await readObject(location.bucket, location.key, ANSWER_MAX_BYTES, options);
    return { contentType: options.accept ?? "", variant: "", bytes, milliseconds: performance.now() - begin, location };
  };
}

/** Wait until one of the objects exists. */
async function firstStored(places: readonly Place[], signal?: AbortSignal): Promise<Place> {
  for (;;) {
    for (const place of places) {
      const { objects } = await listFolder(place.bucket, place.key, undefined, signal ? { signal } : {});
      if (objects.some((each) => each.key === place.key)) return place;
    }
    await new Promise((resolve) => window.setTimeout(resolve, LOOK_MS));
  }
}
