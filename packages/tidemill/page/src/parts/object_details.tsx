/** One object of S3: its metadata, its content as far as it can be shown, and what is in an archive. */

import { go, href } from "../location";
import { useLoaded } from "../loaded";
import { bytes as sizeText, time } from "../numbers";
import { deleteObject, folderPlace, headObject, readObject, type ObjectHead } from "../objects";
import { IMAGE_MAX_BYTES, imageType, isArchive, PREVIEW_BYTES } from "../preview";
import { shown } from "../shown_text";
import { Archive } from "./archive";
import { Confirmed } from "./confirmed";
import { Download } from "./download";
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
  const remove = async (): Promise<void> => {
    await deleteObject(bucket, objectKey);
    const folder = folderPlace(bucket, objectKey.slice(0, objectKey.lastIndexOf("/") + 1));
    go(href(folder.to, folder.query));
  };
  return (
    <section aria-label={shown(objectKey)}>
      <h2>{shown(objectKey.slice(objectKey.lastIndexOf("/") + 1) || objectKey)}</h2>
      {head.error !== undefined && <Failure error={head.error} retry={head.reload} />}
      {head.value && (
        <>
          <p class="actions">
            <Download place={{ bucket, key: objectKey }} />{" "}
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
  const { value: content, error, reload } = useLoaded(head.etag, async (signal) => {
    if (head.size === 0) return new Uint8Array();
    const isImage = imageType(objectKey) !== undefined && head.size <= IMAGE_MAX_BYTES;
    return readObject(bucket, objectKey, isImage ? IMAGE_MAX_BYTES : PREVIEW_BYTES, { signal });
  });
  if (error !== undefined) return <Failure error={error} retry={reload} />;
  if (head.size === 0) return <p class="quiet">The object is empty.</p>;
  if (!content) return <p role="status">Reading …</p>;
  return <Preview name={objectKey} bytes={content} size={head.size} />;
}
