/** All requests of the page. They are those of every client, with the page's session instead of a signature. */

import { signedHeaders, type KeyPair } from "./signing";

const CALL = "/_tidemill/call/";
const SESSION = "/_tidemill/session";
const STORED = "tidemill-session";
const ENDED = "tidemill:session-ended";

const TARGETS = {
  sagemaker: "SageMaker",
  logs: "Logs_20140328",
  cloudwatch: "GraniteServiceVersion20100801",
  "application-autoscaling": "AnyScaleFrontendService",
  tidemill: "Tidemill",
} as const;

export type JsonService = keyof typeof TARGETS;

/** An error of the service, as AWS's clients see it. */
export class ServiceError extends Error {
  constructor(
    /** For example `ResourceNotFound`; `NoAnswer` if the service did not answer. */
    readonly code: string,
    message: string,
    /** The HTTP status; 0 without an answer. */
    readonly status: number,
  ) {
    super(message);
    this.name = "ServiceError";
  }
}

/** Whether the service has answered that it will not: the same request would be answered so again. */
export function isRefusal(error: unknown): boolean {
  return error instanceof ServiceError && error.status < 500 && error.code !== "NoAnswer";
}

export interface Session {
  /** ARN of the user as whom it acts. */
  user: string;
  readOnly: boolean;
  region: string;
  /** Seconds since the epoch. */
  expires: number;
}

interface StoredSession extends Session {
  /** Sent as a header: the cookie alone, which every port of this host gets, proves nothing. */
  secret: string;
}

export interface CallOptions {
  signal?: AbortSignal;
}

/** Perform an operation of a JSON service; dates in the answer are seconds since the epoch. */
export async function call<T>(
  service: JsonService,
  operation: string,
  input: object = {},
  options: CallOptions = {},
): Promise<T> {
  const response = await send(`${CALL}${service}/`, {
    method: "POST",
    headers: {
      "content-type": "application/x-amz-json-1.1",
      "x-amz-target": `${TARGETS[service]}.${operation}`,
    },
    body: JSON.stringify(input),
    signal: options.signal ?? null,
  });
  return (await response.json()) as T;
}

/** The values of metrics of trial components: this service has paths instead of targets. */
export async function batchGetMetrics<T>(queries: readonly object[], options: CallOptions = {}): Promise<T> {
  const response = await send(`${CALL}sagemaker-metrics/BatchGetMetrics`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ MetricQueries: queries }),
    signal: options.signal ?? null,
  });
  return (await response.json()) as T;
}

export interface S3Options extends CallOptions {
  /** The header Range, e.g. `bytes=0-99`. */
  range?: string;
}

/** A request of S3. Without a bucket: the list of buckets. */
export async function s3(
  method: string,
  bucket = "",
  key = "",
  query: Record<string, string> = {},
  body: BodyInit | null = null,
  options: S3Options = {},
): Promise<Response> {
  if ([bucket, ...key.split("/")].some((step) => step === "." || step === "..")) {
    // An address has no form for such a step, not even percent-encoded: it would name something else.
    throw new ServiceError("NoAddress", "A browser cannot ask for an object with a step . or .. in its key.", 0);
  }
  const headers: Record<string, string> = options.range ? { range: options.range } : {};
  const path = [bucket, ...(key ? key.split("/") : [])].map(encodeURIComponent).join("/");
  const search = new URLSearchParams(query).toString().replaceAll("+", "%20");
  return send(`${CALL}s3/${path}${search ? `?${search}` : ""}`, { method, headers, body, signal: options.signal ?? null });
}

export interface InvokeOptions extends CallOptions {
  contentType?: string;
  accept?: string;
  targetModel?: string;
  variant?: string;
}

/** Send a request to an endpoint. */
export async function invoke(endpoint: string, body: BodyInit, options: InvokeOptions = {}): Promise<Response> {
  const headers: Record<string, string> = { "content-type": options.contentType ?? "application/json" };
  if (options.accept) headers["accept"] = options.accept;
  if (options.targetModel) headers["x-amzn-sagemaker-target-model"] = options.targetModel;
  if (options.variant) headers["x-amzn-sagemaker-target-variant"] = options.variant;
  const path = `sagemaker-runtime/endpoints/${encodeURIComponent(endpoint)}/invocations`;
  return send(CALL + path, { method: "POST", headers, body, signal: options.signal ?? null });
}

/** What an asynchronous endpoint answers at once. */
export interface AcceptedRequest {
  InferenceId: string;
  OutputLocation: string;
  FailureLocation: string;
}

/** Send a request, whose body is an object of S3, to an asynchronous endpoint. */
export async function invokeAsync(endpoint: string, input: string, options: InvokeOptions = {}): Promise<AcceptedRequest> {
  const headers: Record<string, string> = {
    "x-amzn-sagemaker-inputlocation": input,
    "x-amzn-sagemaker-content-type": options.contentType ?? "application/json",
  };
  if (options.accept) headers["x-amzn-sagemaker-accept"] = options.accept;
  const path = `sagemaker-runtime/endpoints/${encodeURIComponent(endpoint)}/async-invocations`;
  const response = await send(CALL + path, { method: "POST", headers, signal: options.signal ?? null });
  return {
    InferenceId: ((await response.json()) as { InferenceId?: string }).InferenceId ?? "",
    OutputLocation: response.headers.get("x-amzn-sagemaker-outputlocation") ?? "",
    FailureLocation: response.headers.get("x-amzn-sagemaker-failurelocation") ?? "",
  };
}

/** Let the browser download an object, by a presigned address that is valid for a minute. */
export async function download(bucket: string, key: string): Promise<void> {
  const { Url } = await call<{ Url: string }>("tidemill", "PresignDownload", { Bucket: bucket, Key: key });
  const link = document.createElement("a");
  link.href = Url;
  link.download = key.slice(key.lastIndexOf("/") + 1);
  link.click();
}

/** The session of this browser, or null: whether the service still knows it, the first request shows. */
export function currentSession(): Session | null {
  return stored();
}

/** Prove a key by a signed request, and return a token for a session of its owner. */
export async function createToken(keys: KeyPair, readOnly: boolean): Promise<string> {
  if (!window.isSecureContext) {
    throw new ServiceError("NoTls", "Browsers sign only on pages that came by HTTPS, or from this machine.", 0);
  }
  const body = JSON.stringify({ ReadOnly: readOnly });
  const headers = await signedHeaders(keys, "CreatePageToken", body, window.location.host);
  const response = await answer("/", { method: "POST", headers, body });
  return ((await response.json()) as { Token: string }).Token;
}

/** Begin a session with a token, which is then worth nothing. */
export async function startSession(token: string, options: { replaces?: boolean } = {}): Promise<Session> {
  const response = await send(SESSION, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ token, replaces: options.replaces ?? false }),
  });
  const session = (await response.json()) as StoredSession;
  localStorage.setItem(STORED, JSON.stringify(session));
  return session;
}

/** End the session, here and in the service. */
export async function endSession(): Promise<void> {
  try {
    await send(SESSION, { method: "DELETE" });
  } finally {
    forget();
  }
}

/** Call `listener` when the session has ended or is another one: by its time, by `tidemill open`, or in another tab. */
export function onSessionChange(listener: () => void): () => void {
  const inOtherTab = (event: StorageEvent): void => {
    // No key: everything was removed.
    if (event.key === STORED || event.key === null) listener();
  };
  window.addEventListener(ENDED, listener);
  window.addEventListener("storage", inOtherTab);
  return () => {
    window.removeEventListener(ENDED, listener);
    window.removeEventListener("storage", inOtherTab);
  };
}

async function send(address: string, init: RequestInit): Promise<Response> {
  const headers = new Headers(init.headers);
  const secret = stored()?.secret ?? "";
  headers.set("x-tidemill-session", secret);
  try {
    return await answer(address, { ...init, headers, credentials: "same-origin" });
  } catch (error) {
    const isEnd = error instanceof ServiceError && error.code === "PageSessionEnded";
    // Another tab may have begun a session meanwhile, which this answer is not about.
    if (isEnd && (stored()?.secret ?? "") === secret) forget();
    throw error;
  }
}

async function answer(address: string, init: RequestInit): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(address, { credentials: "omit", cache: "no-store", ...init });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ServiceError("NoAnswer", "The service does not answer. It may have ended: tidemill status", 0);
  }
  if (response.ok) return response;
  throw await failure(response);
}

async function failure(response: Response): Promise<ServiceError> {
  const text = await response.text();
  const header = response.headers.get("x-amzn-errortype") ?? "";
  try {
    const content = JSON.parse(text) as { __type?: string; message?: string; Message?: string };
    const code = content.__type ?? header;
    return new ServiceError(code, content.message ?? content.Message ?? code, response.status);
  } catch {
    const code = /<Code>([^<]*)<\/Code>/.exec(text)?.[1] ?? (header || "UnknownError");
    const message = /<Message>([^<]*)<\/Message>/.exec(text)?.[1] ?? `The service answered ${response.status}.`;
    return new ServiceError(code, unescaped(message), response.status);
  }
}

function unescaped(text: string): string {
  const names: Record<string, string> = { lt: "<", gt: ">", quot: '"', apos: "'", amp: "&" };
  return text.replace(/&(lt|gt|quot|apos|amp);/g, (_, name: string) => names[name] ?? "");
}

function stored(): StoredSession | null {
  try {
    const session = JSON.parse(localStorage.getItem(STORED) ?? "null") as StoredSession | null;
    return session && typeof session.secret === "string" ? session : null;
  } catch {
    return null;
  }
}

function forget(): void {
  localStorage.removeItem(STORED);
  window.dispatchEvent(new Event(ENDED));
}
