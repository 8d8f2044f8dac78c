import { useState } from "preact/hooks";

import { listMembers, readMember, type ArchiveMember } from "../archive_members";
import type { Kind } from "../job_kinds";
import { outputs, textsOf, type Request } from "../job_request";
import { useLoaded } from "../loaded";
import { bytes, time } from "../numbers";
import { folderPlace, listBelow, placeOf, type S3Entry } from "../objects";
import { shown } from "../shown_text";
import { Download } from "./download";
import { Failure } from "./failure";
import { Link } from "./link";
import { ObjectDetails } from "./object_details";
import { Text } from "./text";

const LIVE_LOOK_MS = 5000;
const REPORT = /(^|\/)compiler\/report\.txt$/;
const REPORT_MAX_BYTES = 1024 * 1024;
const PAGES_MAX = 5;

interface ArtifactsProps {
  kind: Kind;
  name: string;
  request: Request;
  /** Whether objects still come. */
  isLive: boolean;
}

/** The objects that a job has written: model, output, checkpoints. */
export function Artifacts({ kind, name, request, isLive }: ArtifactsProps) {
  const places = outputs(kind, name, request);
  const isCompiled = textsOf(request["HyperParameters"])["sagemaker_training_compiler_enabled"] === "true";
  if (!places.length) return <p>The request names no place in S3 for results.</p>;
  return (
    <>
      {isCompiled && !isLive && places[0] && <CompilerReport output={places[0][1]} />}
      {places.map(([title, uri]) => (
        <Objects key={`${title} ${uri}`} title={title} uri={uri} isLive={isLive} />
      ))}
    </>
  );
}

function Objects({ title, uri, isLive }: { title: string; uri: string; isLive: boolean }) {
  const { bucket, key: prefix } = placeOf(uri) ?? { bucket: "", key: "" };
  const [chosen, setChosen] = useState<string | null>(null);
  const { value: page, error } = useLoaded(
    uri,
    (signal) => listBelow(bucket, prefix, { signal }),
    { every: () => (isLive ? LIVE_LOOK_MS : undefined) },
  );
  return (
    <section aria-label={shown(title)}>
      <h2>{shown(title)}</h2>
      <p>
        <Link {...folderPlace(bucket, prefix && prefix.replace(/\/*$/, "/"))}>{shown(uri)}</Link>
      </p>
      {error !== undefined && <Failure error={error} />}
      {page?.objects.length === 0 && <p class="quiet">There is nothing yet.</p>}
      {page !== undefined && page.objects.length > 0 && (
        <ObjectTable {...{ title, bucket, prefix, chosen }} objects={page.objects} onChoose={setChosen} />
      )}
      {page?.next && <p>There are more objects; the link above lists all of them.</p>}
      {chosen !== null && <ObjectDetails key={chosen} bucket={bucket} objectKey={chosen} />}
    </section>
  );
}

interface ObjectTableProps {
  title: string;
  bucket: string;
  prefix: string;
  objects: readonly S3Entry[];
  chosen: string | null;
  onChoose: (key: string | null) => void;
}

function ObjectTable({ title, bucket, prefix, objects, chosen, onChoose }: ObjectTableProps) {
  return (
    <div class="wide" tabIndex={0} role="region" aria-label={`Objects of ${shown(title)}`}>
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
          {objects.map((each) => (
            <tr key={each.key}>
              <td>
                <button
                  type="button"
                  class="as-link"
                  aria-pressed={chosen === each.key}
                  onClick={() => onChoose(chosen === each.key ? null : each.key)}
                >
                  {shown(each.key.slice(prefix.length) || each.key)}
                </button>
              </td>
              <td class="numeric">{bytes(each.size)}</td>
              <td>{time(Date.parse(each.modified) / 1000)}</td>
              <td>
                <Download place={{ bucket, key: each.key }} isNamed />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** What the training compiler has chosen, from the job's output. */
function CompilerReport({ output }: { output: string }) {
  const { value, error } = useLoaded(output, (signal) => compilerReport(output, signal));
  return (
    <section aria-label="Report of the training compiler">
      <h2>Training compiler</h2>
      {error !== undefined && <Failure error={error} />}
      {value === "" && <p class="quiet">The output has no report.</p>}
      {value && (
        <pre class="code" tabIndex={0} role="region" aria-label="Text of the report">
          <Text value={value} max={20_000} lines />
        </pre>
      )}
    </section>
  );
}

async function compilerReport(output: string, signal: AbortSignal): Promise<string> {
  const { bucket, key: prefix } = placeOf(output) ?? { bucket: "", key: "" };
  const { objects } = await listBelow(bucket, `${prefix}output/`, { signal });
  const archive = objects.find((each) => each.key.endsWith("/output.tar.gz"));
  if (!archive) return "";
  let token: string | undefined;
  for (let number = 0; number < PAGES_MAX; number += 1) {
    const page = await listMembers(bucket, archive.key, token, { signal });
    const member: ArchiveMember | undefined = page.Members.find((each) => REPORT.test(each.Name));
    if (member) {
      return new TextDecoder().decode(await readMember(bucket, archive.key, page.ETag, member, REPORT_MAX_BYTES, { signal }));
    }
    token = page.NextToken;
    if (!token) return "";
  }
  return "";
}
