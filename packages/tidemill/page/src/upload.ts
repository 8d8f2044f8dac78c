/** Upload a file to S3: a small one by one request, a large one in parts. */

import { s3 } from "./service";

const PART_BYTES = 16 * 1024 * 1024;
const PARTS_MAX = 10_000;
const AT_ONCE = 2;

/** Upload a file, and tell how many of its bytes are stored. An upload that fails leaves nothing behind. */
export async function uploadFile(
  bucket: string,
  key: string,
  file: File,
  tell: (stored: number) => void,
  signal: AbortSignal,
): Promise<void> {
  if (file.size <= PART_BYTES) {
    await s3("PUT", bucket, key, {}, file, { signal });
    tell(file.size);
    return;
  }
  const begun = await (await s3("POST", bucket, key, { uploads: "" }, new Blob([], { type: file.type }))).text();
  const uploadId = /<UploadId>([^<]+)<\/UploadId>/.exec(begun)?.[1] ?? "";
  try {
    const etags = await uploadParts(bucket, key, file, uploadId, tell, signal);
    const parts = etags.map((etag, index) => `<Part><PartNumber>${index + 1}</PartNumber><ETag>${etag}</ETag></Part>`);
    const document = `<CompleteMultipartUpload>${parts.join("")}</CompleteMultipartUpload>`;
    await s3("POST", bucket, key, { uploadId }, new Blob([document], { type: "application/xml" }), { signal });
  } catch (error) {
    await s3("DELETE", bucket, key, { uploadId }).catch(() => undefined); // the first error is the one to show
    throw error;
  }
}

async function uploadParts(
  bucket: string,
  key: string,
  file: File,
  uploadId: string,
  tell: (stored: number) => void,
  signal: AbortSignal,
): Promise<string[]> {
  const size = partBytes(file.size);
  const count = Math.ceil(file.size / size);
  const etags: string[] = new Array<string>(count).fill("");
  let next = 0;
  let stored = 0;
  const work = async (): Promise<void> => {
    while (next < count) {
      const number = next++;
      const part = file.slice(number * size, (number + 1) * size);
      const query = { partNumber: String(number + 1), uploadId };
      const response = await s3("PUT", bucket, key, query, part, { signal });
      etags[number] = (response.headers.get("etag") ?? "").replaceAll('"', "&quot;");
      stored += part.size;
      tell(stored);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  return etags;
}

/** Bytes of a part: 16 MiB, or more for files that would have too many parts. */
export function partBytes(size: number): number {
  return Math.max(PART_BYTES, Math.ceil(size / PARTS_MAX));
}
