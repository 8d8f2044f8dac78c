/** Buckets and objects of S3: lists, the head of an object, and its bytes. */

import { s3, type CallOptions } from "./service";

export interface Bucket {
  name: string;
  /** ISO 8601. */
  created: string;
}

export interface S3Entry {
  key: string;
  size: number;
  /** ISO 8601. */
  modified: string;
}

export interface ListPage {
  /** Common prefixes up to the next slash, with it. */
  folders: string[];
  objects: S3Entry[];
  /** Token of the next page. */
  next?: string;
}

export interface Place {
  bucket: string;
  key: string;
}

export interface ObjectHead {
  size: number;
  type: string;
  modified: string;
  etag: string;
  metadata: [string, string][];
}

const PAGE_OBJECTS = 200;
// Other headers of this begin are about the request.
const ABOUT_OBJECT = /^x-amz-(meta-|server-side-encryption|storage-class|tagging-count|version-id)/;

export async function listBuckets(options?: CallOptions): Promise<Bucket[]> {
  const text = await (await s3("GET", "", "", {}, null, options)).text();
  return blocks(text, "Bucket").map((each) => ({ name: textIn(each, "Name"), created: textIn(each, "CreationDate") }));
}

/** A page of the objects and folders below a prefix. */
export async function listFolder(
  bucket: string,
  prefix: string,
  token?: string,
  options?: CallOptions,
): Promise<ListPage> {
  const query = {
    "list-type": "2",
    delimiter: "/",
    prefix,
    "max-keys": String(PAGE_OBJECTS),
    // Keys come percent-encoded: XML has no form for control characters.
    "encoding-type": "url",
    ...(token ? { "continuation-token": token } : {}),
  };
  return listPage(await (await s3("GET", bucket, "", query, null, options)).text());
}

/** The first objects below a prefix, at any depth. */
export async function listBelow(bucket: string, prefix: string, options?: CallOptions): Promise<ListPage> {
  const query = { "list-type": "2", prefix, "max-keys": String(PAGE_OBJECTS), "encoding-type": "url" };
  return listPage(await (await s3("GET", bucket, "", query, null, options)).text());
}

/** Bucket and key of an S3 URI, whose key may be empty; undefined for another text. */
export function placeOf(uri: string | undefined): Place | undefined {
  const match = /^s3:\/\/([^/]+)\/?([\s\S]*)$/.exec(uri ?? "");
  return match ? { bucket: match[1] ?? "", key: match[2] ?? "" } : undefined;
}

/** Return the training job whose archive a URI can be: SageMaker writes it to `.../JOB/output/model.tar.gz`. */
export function jobOfArchive(uri: string | undefined): string | undefined {
  return /\/([A-Za-z0-9-]{1,63})\/output\/model\.tar\.gz$/.exec(uri ?? "")?.[1];
}

export function listPage(xml: string): ListPage {
  const next = textIn(xml, "NextContinuationToken");
  return {
    folders: blocks(xml, "CommonPrefixes").map((each) => decoded(textIn(each, "Prefix"))),
    objects: blocks(xml, "Contents").map((each) => ({
      key: decoded(textIn(each, "Key")),
      size: Number(textIn(each, "Size")),
      modified: textIn(each, "LastModified"),
    })),
    ...(next ? { next } : {}),
  };
}

export async function headObject(bucket: string, key: string, options?: CallOptions): Promise<ObjectHead> {
  const { headers } = await s3("HEAD", bucket, key, {}, null, options);
  return {
    size: Number(headers.get("content-length") ?? 0),
    type: headers.get("content-type") ?? "",
    modified: headers.get("last-modified") ?? "",
    etag: headers.get("etag") ?? "",
    metadata: [...headers].filter(([name]) => ABOUT_OBJECT.test(name)).sort(),
  };
}

/** The first bytes of an object, at most `max`. */
export async function readObject(
  bucket: string,
  key: string,
  max: number,
  options: CallOptions = {},
): Promise<Uint8Array> {
  const response = await s3("GET", bucket, key, {}, null, { ...options, range: `bytes=0-${max - 1}` });
  return new Uint8Array(await response.arrayBuffer());
}

export async function deleteObject(bucket: string, key: string): Promise<void> {
  await s3("DELETE", bucket, key);
}

/** Where the page shows an object. */
export function objectLink({ bucket, key }: Place): { to: string[]; query: Record<string, string> } {
  return { to: ["data", bucket], query: { object: key } };
}

/** Where the page shows the folder of a prefix; the segments `.` and `..` of a path would not stay in an address. */
export function folderPlace(bucket: string, prefix: string): { to: string[]; query: Record<string, string> } {
  const segments = prefix === "" ? [] : prefix.slice(0, -1).split("/");
  if (segments.some((each) => each === "." || each === "..")) return { to: ["data", bucket], query: { prefix } };
  return { to: ["data", bucket, ...segments], query: {} };
}

function blocks(xml: string, name: string): string[] {
  return [...xml.matchAll(new RegExp(`<${name}>([\\s\\S]*?)</${name}>`, "g"))].map((match) => match[1] ?? "");
}

function textIn(xml: string, name: string): string {
  const text = new RegExp(`<${name}>([^<]*)</${name}>`).exec(xml)?.[1] ?? "";
  const signs: Record<string, string> = { lt: "<", gt: ">", quot: '"', apos: "'", amp: "&" };
  return text.replace(/&(lt|gt|quot|apos|amp);/g, (_, sign: string) => signs[sign] ?? "");
}

function decoded(text: string): string {
  return decodeURIComponent(text.replaceAll("+", " "));
}
