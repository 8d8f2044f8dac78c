import { leavesOf } from "../json_leaves";
import { useLoaded } from "../loaded";
import { objectLink, placeOf, type Place } from "../objects";
import { s3 } from "../service";
import { shown } from "../shown_text";
import { Failure } from "./failure";
import { Link } from "./link";
import { PlainTable } from "./plain_table";
import { Text } from "./text";

/** ModelMetrics of a model package: reports in S3, by what they are about. */
export type MetricSources = Readonly<Record<string, Readonly<Record<string, { ContentType?: string; S3Uri?: string }>>>>;

const LONGEST_BYTES = 1_000_000;
const VALUES = 200;

/** The reports of a version; the values of those that are JSON. */
export function ModelMetrics({ sources }: { sources: MetricSources }) {
  const reports = Object.entries(sources).flatMap(([about, kinds]) =>
    Object.entries(kinds).map(([kind, { S3Uri }]) => ({ title: `${about}: ${kind}`, place: placeOf(S3Uri) })),
  );
  return (
    <>
      <h2>Metrics</h2>
      {reports.map(({ title, place }) => place?.key && <Report key={title} title={title} place={place} />)}
    </>
  );
}

function Report({ title, place }: { title: string; place: Place }) {
  const { value, error } = useLoaded(`${place.bucket}/${place.key}`, (signal) => valuesOf(place, signal));
  return (
    <section aria-label={shown(title)}>
      <p>
        {shown(title)}: <Link {...objectLink(place)}>{shown(place.key.split("/").at(-1)!)}</Link>
      </p>
      {error !== undefined && <Failure error={error} />}
      {value && value.length > 0 && (
        <PlainTable label={`Values of ${shown(title)}`} titles={["Name", "Value"]}>
          {value.map(([name, text]) => (
            <tr key={name}>
              <th scope="row">
                <Text value={name} max={120} />
              </th>
              <td>
                <Text value={text} max={120} />
              </td>
            </tr>
          ))}
        </PlainTable>
      )}
    </section>
  );
}

/** Return the values of a report; none if it is no JSON, or too long to be read here. */
async function valuesOf({ bucket, key }: Place, signal: AbortSignal): Promise<[string, string][]> {
  const response = await s3("GET", bucket, key, {}, null, { signal });
  if (Number(response.headers.get("content-length") ?? Infinity) > LONGEST_BYTES) {
    await response.body?.cancel();
    return [];
  }
  try {
    return leavesOf(JSON.parse(await response.text()), VALUES);
  } catch (error) {
    if (error instanceof SyntaxError) return [];
    throw error;
  }
}
