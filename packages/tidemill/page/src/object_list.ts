/** Objects of S3 below a prefix, as the pages of artifacts show them. */

import { s3 } from "./service";

export interface S3Object {
  key: string;
  size: number;
  /** ISO 8601. */
  modified: string;
}

export interface ObjectPage {
  objects: S3Object[];
  /** Whether there are more. */
  isCut: boolean;
}

const OBJECTS_MAX = 500;

/** Bucket and key of an S3 URI; null for another text. */
export function placeOf(uri: string): { bucket: string; key: string } | null {
  const match = /^s3:\/\/([^/]+)\/?([\s\S]*)$/.exec(uri);
  return match ? { bucket: match[1] ?? "", key: match[2] ?? "" } : null;
}

export async function objectsBelow(bucket: string, prefix: string): Promise<ObjectPage> {
  const query = { "list-type": "2", prefix, "max-keys": String(OBJECTS_MAX), "encoding-type": "url" };
  const text = await (await s3("GET", bucket, "", query)).text();
  return {
    objects: [...text.matchAll(/<Contents>([\s\S]*?)<\/Contents>/g)].map(([, each = ""]) => ({
      key: decodeURIComponent(textIn(each, "Key").replaceAll("+", " ")),
      size: Number(textIn(each, "Size")),
      modified: textIn(each, "LastModified"),
    })),
    isCut: textIn(text, "IsTruncated") === "true",
  };
}

// The keys come percent-encoded, so that no text needs the XML parser, which the page's policy does not allow.
function textIn(xml: string, name: string): string {
  return new RegExp(`<${name}>([^<]*)</${name}>`).exec(xml)?.[1] ?? "";
}
