/** Buckets of S3, their folders and objects. */

import { useEffect, useState } from "preact/hooks";

import { useLoaded } from "../loaded";
import { bytes as sizeText, time } from "../numbers";
import { folderPlace, listBuckets, listFolder, objectLink, type ListPage, type S3Entry } from "../objects";
import { Failure } from "../parts/failure";
import { Link } from "../parts/link";
import { ObjectDetails } from "../parts/object_details";
import { Uploads } from "../parts/uploads";
import type { ViewProps } from "../routes";
import { cutMiddle, shown } from "../shown_text";

const NAME_CHARS = 100;

export default function Data({ params, query }: ViewProps) {
  const { bucket, rest } = params;
  if (bucket === undefined) return <Buckets />;
  const key = query.get("object");
  const prefix = query.get("prefix") ?? (rest && !rest.endsWith("/") ? `${rest}/` : (rest ?? ""));
  return (
    <>
      <h1>Data</h1>
      <Way bucket={bucket} prefix={key === null ? prefix : key.slice(0, key.lastIndexOf("/") + 1)} />
      {key === null ? (
        <Folder key={`${bucket}/${prefix}`} bucket={bucket} prefix={prefix} />
      ) : (
        <ObjectDetails key={`${bucket}/${key}`} bucket={bucket} objectKey={key} />
      )}
    </>
  );
}

function Buckets() {
  const buckets = useLoaded("buckets", (signal) => listBuckets({ signal }));
  return (
    <>
      <h1>Data</h1>
      {buckets.error !== undefined && <Failure error={buckets.error} retry={buckets.reload} />}
      {buckets.value?.length === 0 && <p class="quiet">There is no bucket.</p>}
      {buckets.value && buckets.value.length > 0 && (
        <div class="wide" tabIndex={0} role="region" aria-label="Buckets">
          <table class="plain">
            <thead>
              <tr>
                <th scope="col">Bucket</th>
                <th scope="col">Created</th>
              </tr>
            </thead>
            <tbody>
              {buckets.value.map((each) => (
                <tr key={each.name}>
                  <td>
                    <Link to={["data", each.name]}>{shown(each.name)}</Link>
                  </td>
                  <td>{time(Date.parse(each.created) / 1000)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </>
  );
}

/** The way from all buckets to a folder, each step as a link. */
function Way({ bucket, prefix }: { bucket: string; prefix: string }) {
  const names = prefix === "" ? [] : prefix.slice(0, -1).split("/");
  const steps = names.map((name, index) => ({ name, prefix: `${names.slice(0, index + 1).join("/")}/` }));
  return (
    <nav class="way" aria-label="Folder">
      <Link to={["data"]}>Buckets</Link> / <Folders bucket={bucket} prefix="" name={bucket} />
      {steps.map((step) => (
        <span key={step.prefix}>
          {" / "}
          <Folders bucket={bucket} prefix={step.prefix} name={step.name} />
        </span>
      ))}
    </nav>
  );
}

function Folders({ bucket, prefix, name }: { bucket: string; prefix: string; name: string }) {
  const place = folderPlace(bucket, prefix);
  return (
    <Link to={place.to} query={place.query} title={shown(name)}>
      {cutMiddle(shown(name), NAME_CHARS) || "(no name)"}
    </Link>
  );
}

function Folder({ bucket, prefix }: { bucket: string; prefix: string }) {
  const [pages, setPages] = useState<ListPage[]>([]);
  const [error, setError] = useState<unknown>();
  const [isLoading, setLoading] = useState(true);
  const last = pages[pages.length - 1];
  const load = async (token?: string, signal?: AbortSignal): Promise<void> => {
    setLoading(true);
    try {
      const page = await listFolder(bucket, prefix, token, signal ? { signal } : {});
      setPages((before) => (token ? [...before, page] : [page]));
      setError(undefined);
    } catch (reason) {
      if (signal?.aborted) return;
      setError(reason);
    }
    setLoading(false);
  };
  useEffect(() => {
    const controller = new AbortController();
    void load(undefined, controller.signal);
    return () => controller.abort();
  }, []);
  const folders = pages.flatMap((page) => page.folders);
  const objects = pages.flatMap((page) => page.objects);
  const isEmpty = last !== undefined && folders.length + objects.length === 0;
  return (
    <section aria-label="Objects" aria-busy={isLoading}>
      {error !== undefined && <Failure error={error} retry={() => void load(last?.next)} />}
      {isEmpty && <NoFolder bucket={bucket} prefix={prefix} />}
      {last && !isEmpty && <Entries bucket={bucket} prefix={prefix} folders={folders} objects={objects} />}
      {last?.next !== undefined && (
        <button type="button" disabled={isLoading} onClick={() => void load(last.next)}>
          More objects
        </button>
      )}
      {last && <Uploads bucket={bucket} prefix={prefix} onStored={() => void load()} />}
    </section>
  );
}

/** An address without an object below it may be that of an object. */
function NoFolder({ bucket, prefix }: { bucket: string; prefix: string }) {
  const key = prefix.slice(0, -1);
  const near = useLoaded(key, async (signal) => (key ? (await listFolder(bucket, key, undefined, { signal })).objects : []));
  if (near.value?.some((each) => each.key === key)) return <ObjectDetails bucket={bucket} objectKey={key} />;
  if (near.error !== undefined) return <Failure error={near.error} retry={near.reload} />;
  return near.value ? <p class="quiet">There is no object here.</p> : null;
}

interface EntriesProps {
  bucket: string;
  prefix: string;
  folders: readonly string[];
  objects: readonly S3Entry[];
}

function Entries({ bucket, prefix, folders, objects }: EntriesProps) {
  return (
    <div class="wide" tabIndex={0} role="region" aria-label="Folders and objects">
      <table class="plain">
        <thead>
          <tr>
            <th scope="col">Name</th>
            <th scope="col" class="numeric">
              Size
            </th>
            <th scope="col">Changed</th>
          </tr>
        </thead>
        <tbody>
          {folders.map((folder) => (
            <tr key={folder}>
              <td>
                <Folders bucket={bucket} prefix={folder} name={folder.slice(prefix.length)} />
              </td>
              <td class="numeric quiet">folder</td>
              <td />
            </tr>
          ))}
          {objects.map((each) => (
            <tr key={`object ${each.key}`}>
              <td>
                <Link {...objectLink({ bucket, key: each.key })} title={shown(each.key)}>
                  {cutMiddle(shown(each.key.slice(prefix.length)), NAME_CHARS) || "(no name)"}
                </Link>
              </td>
              <td class="numeric">{sizeText(each.size)}</td>
              <td>{time(Date.parse(each.modified) / 1000)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
