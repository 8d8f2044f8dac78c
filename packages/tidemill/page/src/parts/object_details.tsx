/** One object of S3: its metadata, its content as far as it can be shown, and what is in an archive. */

import { useEffect, useState } from "preact/hooks";

import { go, href } from "../location";
import { useLoaded } from "../loaded";
import { bytes as sizeText, time } from "../numbers";
import { deleteObject, folderPlace, headObject, readObject, type ObjectHead } from "../objects";
import { IMAGE_MAX_BYTES, imageType, isArchive, PREVIEW_BYTES } from "../preview";
import { download } from "../service";
import { shown } from "../shown_text";
import { Archive } from "./archive";
import { Confirmed } from "./confirmed";
import { Failure } from "./failure";
import { Figures } from "./figures";
import { Preview } from "./preview";
import { Text } from "./text";

interface ObjectProps {
  bucket: string;
  objectKey: string;
}

export function ObjectDetails({ bucket, objectKey }: ObjectProps) {
  const head = useLoaded(`${bucket}/${objectKey}`, (signal) => headObject(bucket, objectKey, { signal }));
  const [error, setError] = useState<unknown>();
  const save = (): void => {
    setError(undefined);
    download(bucket, objectKey).catch(setError);
  };
  const remove = async (): Promise<void> => {
    await deleteObject(bucket, objectKey);
    const folder = folderPlace(bucket, objectKey.slice(0, objectKey.lastIndexOf("/") + 1));
    go(href(folder.to, folder.query));
  };
  return (
    <section aria-label={shown(objectKey)}>
      <h2>{shown(objectKey.slice(objectKey.lastIndexOf("/") + 1) || objectKey)}</h2>
      {head.error !== undefined && <Failure error={head.error} retry={head.reload} />}
      {error !== undefined && <Failure error={error} />}
      {head.value && (
        <>
          <p class="actions">
            <button type="button" onClick={save}>
              Download
            </button>{" "}
            <Confirmed label="Delete" question={`Delete ${shown(objectKey)}?`} run={remove} />
          </p>
          <Head bucket={bucket} objectKey={objectKey} head={head.value} />
          <h3>Content</h3>
          <Content bucket={bucket} objectKey={objectKey} head={head.value} />
        </>
      )}
    </section>
  );
}

function Head({ bucket, objectKey, head }: ObjectProps & { head: ObjectHead }) {
  return (
    <Figures
      entries={[
        ["Address", <Text value={`s3://${bucket}/${objectKey}`} />],
        ["Size", `${sizeText(head.size)}${head.size >= 1024 ? ` (${head.size.toLocaleString("en")} bytes)` : ""}`],
        ["Changed", time(Date.parse(head.modified) / 1000)],
        ["Media type", <Text value={head.type || "none"} max={100} />],
        ["ETag", <Text value={head.etag} />],
        ...head.metadata.map(([name, value]) => [name, <Text value={value} max={200} />] as const),
      ]}
    />
  );
}

function Content({ bucket, objectKey, head }: ObjectProps & { head: ObjectHead }) {
  if (isArchive(objectKey)) return <Archive bucket={bucket} objectKey={objectKey} />;
  return <File key={head.etag} bucket={bucket} objectKey={objectKey} head={head} />;
}

function File({ bucket, objectKey, head }: ObjectProps & { head: ObjectHead }) {
  const [content, setContent] = useState<Uint8Array>();
  const [error, setError] = useState<unknown>();
  useEffect(() => {
    if (head.size === 0) return undefined;
    const controller = new AbortController();
    const isImage = imageType(objectKey) !== undefined && head.size <= IMAGE_MAX_BYTES;
    readObject(bucket, objectKey, isImage ? IMAGE_MAX_BYTES : PREVIEW_BYTES, { signal: controller.signal }).then(
      setContent,
      (reason: unknown) => {
        if (!controller.signal.aborted) setError(reason);
      },
    );
    return () => controller.abort();
  }, []);
  if (error !== undefined) return <Failure error={error} />;
  if (head.size === 0) return <p class="quiet">The object is empty.</p>;
  if (!content) return <p role="status">Reading …</p>;
  return <Preview name={objectKey} bytes={content} size={head.size} />;
}
