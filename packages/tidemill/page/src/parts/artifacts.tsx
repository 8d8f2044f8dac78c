import { useEffect, useState } from "preact/hooks";

import type { Kind } from "../job_kinds";
import { outputs, type Request } from "../job_request";
import { bytes, time } from "../numbers";
import { objectsBelow, placeOf, type ObjectPage } from "../object_list";
import { download } from "../service";
import { shown } from "../shown_text";
import { Failure } from "./failure";
import { Link } from "./link";

interface ArtifactsProps {
  kind: Kind;
  name: string;
  request: Request;
  /** Changes when there may be other objects. */
  version: string;
}

/** The objects that a job has written: model, output, checkpoints. */
export function Artifacts({ kind, name, request, version }: ArtifactsProps) {
  const places = outputs(kind, name, request);
  if (!places.length) return <p>The request names no place in S3 for results.</p>;
  return (
    <>
      {places.map(([title, uri]) => (
        <Objects key={`${title} ${uri} ${version}`} title={title} uri={uri} />
      ))}
    </>
  );
}

function Objects({ title, uri }: { title: string; uri: string }) {
  const [page, setPage] = useState<ObjectPage | null>(null);
  const [error, setError] = useState<unknown>(null);
  const place = placeOf(uri);
  useEffect(() => {
    if (place) objectsBelow(place.bucket, place.key).then(setPage, setError);
  }, []);
  if (!place) return null;
  const save = (key: string): void => {
    download(place.bucket, key).catch(setError);
  };
  return (
    <section>
      <h2>{shown(title)}</h2>
      <p>
        <Link to={["data", place.bucket, ...place.key.split("/")]}>{shown(uri)}</Link>
      </p>
      {error !== null && <Failure error={error} />}
      {page?.objects.length === 0 && <p class="quiet">There is nothing yet.</p>}
      {page !== null && page.objects.length > 0 && (
        <div class="scrolls" tabIndex={0} role="region" aria-label={`Objects of ${shown(title)}`}>
          <table class="plain">
            <thead>
              <tr>
                <th scope="col">Object</th>
                <th scope="col" class="numeric">
                  Size
                </th>
                <th scope="col">Changed</th>
                <th scope="col">Download</th>
              </tr>
            </thead>
            <tbody>
              {page.objects.map((each) => (
                <tr key={each.key}>
                  <td>{shown(each.key.slice(place.key.length) || each.key)}</td>
                  <td class="numeric">{bytes(each.size)}</td>
                  <td>{time(Date.parse(each.modified) / 1000)}</td>
                  <td>
                    <button type="button" onClick={() => save(each.key)} aria-label={`Download ${shown(each.key)}`}>
                      Download
                    </button>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {page?.isCut && <p>There are more objects; the link above lists all of them.</p>}
    </section>
  );
}
