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
  const query = { "list-type": "2", prefix, "max-keys": String(OBJECTS_MAX) };
  const text = await (await s3("GET", bucket, "", query)).text();
  const answer = new DOMParser().parseFromString(text, "application/xml");
  const textIn = (element: Element, name: string): string => element.getElementsByTagName(name)[0]?.textContent ?? "";
  return {
    objects: [...answer.getElementsByTagName("Contents")].map((each) => ({
      key: textIn(each, "Key"),
      size: Number(textIn(each, "Size")),
      modified: textIn(each, "LastModified"),
    })),
    isCut: textIn(answer.documentElement, "IsTruncated") === "true",
  };
}
