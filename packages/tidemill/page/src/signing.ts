/**
 * Signature Version 4 in the browser, for the one request that needs a key: the one that proves its secret and gets a
 * token for a session. The secret is neither sent nor kept.
 */

export interface KeyPair {
  id: string;
  secret: string;
  /** Of temporary keys. */
  token?: string;
}

const TEXT = new TextEncoder();

/** The headers that sign a request of the service `tidemill`; its path is `/`, without a query. */
export async function signedHeaders(
  keys: KeyPair,
  operation: string,
  body: string,
  host: string,
  now: Date = new Date(),
): Promise<Record<string, string>> {
  const stamp = now.toISOString().replace(/[-:]|\.\d{3}/g, "");
  const scope = [stamp.slice(0, 8), "us-east-1", "tidemill", "aws4_request"];
  const headers: Record<string, string> = {
    "content-type": "application/x-amz-json-1.1",
    "x-amz-date": stamp,
    "x-amz-target": `Tidemill.${operation}`,
    ...(keys.token ? { "x-amz-security-token": keys.token } : {}),
  };
  const signed = Object.entries({ ...headers, host }).sort(([a], [b]) => (a < b ? -1 : 1));
  const names = signed.map(([name]) => name).join(";");
  const lines = signed.map(([name, value]) => `${name}:${value.trim()}\n`).join("");
  const request = ["POST", "/", "", lines, names, await digest(body)].join("\n");
  const text = ["AWS4-HMAC-SHA256", stamp, scope.join("/"), await digest(request)].join("\n");
  let key: BufferSource = TEXT.encode(`AWS4${keys.secret}`);
  for (const part of scope) key = await keyed(key, part);
  const signature = hex(await keyed(key, text));
  const credential = `${keys.id}/${scope.join("/")}`;
  return {
    ...headers,
    authorization: `AWS4-HMAC-SHA256 Credential=${credential}, SignedHeaders=${names}, Signature=${signature}`,
  };
}

async function digest(text: string): Promise<string> {
  return hex(await crypto.subtle.digest("SHA-256", TEXT.encode(text)));
}

async function keyed(key: BufferSource, text: string): Promise<ArrayBuffer> {
  const imported = await crypto.subtle.importKey("raw", key, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  return crypto.subtle.sign("HMAC", imported, TEXT.encode(text));
}

function hex(bytes: ArrayBuffer): string {
  return Array.from(new Uint8Array(bytes), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
