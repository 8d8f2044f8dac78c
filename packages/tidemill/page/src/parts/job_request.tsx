import type { Kind } from "../job_kinds";
import { boto3Code, entries, inputs, isOfSdk, sourceOf, textsOf, trainCommand, type Request } from "../job_request";
import { plainValue } from "../job_rows";
import { figure } from "../numbers";
import { folderPlace, placeOf } from "../objects";
import { shown } from "../shown_text";
import { Copy } from "./copy";
import { Link } from "./link";
import { Text } from "./text";

/** Hyperparameters, environment, inputs and tags of a job. */
export function JobSettings({ request, tags }: { request: Request; tags: Record<string, string> }) {
  const all = Object.entries(textsOf(request["HyperParameters"]));
  return (
    <>
      <Pairs title="Hyperparameters" pairs={all.filter(([name]) => !isOfSdk(name)).map(decoded)} />
      <Pairs title="Inputs" pairs={inputs(request)} areUris />
      <Pairs title="Environment variables" pairs={entries(request["Environment"])} />
      <Pairs title="Tags" pairs={Object.entries(tags)} />
      <Pairs title="Hyperparameters of the SDK" pairs={all.filter(([name]) => isOfSdk(name)).map(decoded)} />
    </>
  );
}

/** The last values of a job's metrics. */
export function LastMetrics({ metrics }: { metrics: Record<string, number> }) {
  const pairs = Object.entries(metrics).map(([name, value]): [string, string] => [name, figure(value)]);
  return <Pairs title="Last metrics" pairs={pairs} />;
}

interface JobRequestProps {
  kind: Kind;
  request: Request;
  tags: Record<string, string>;
  /** JSON: what is known of the run. */
  record: string;
}

/** The request of a job, and what repeats it. */
export function JobRequest({ kind, request, tags, record }: JobRequestProps) {
  const json = JSON.stringify(request, null, 2);
  const command = trainCommand(request, tags);
  const source = sourceOf(request);
  const run = indented(record);
  return (
    <>
      {command && (
        <Code
          title="The command that repeats it"
          text={command}
          note={source && `In the directory with the code, which is in ${source}.`}
        />
      )}
      <Code title="The request" text={json} />
      <Code title="The same with boto3" text={boto3Code(kind, request)} note="With another name: each names one job." />
      {run && <Code title="What it ran with" text={run} />}
    </>
  );
}

function Pairs({ title, pairs, areUris = false }: { title: string; pairs: [string, string][]; areUris?: boolean }) {
  if (!pairs.length) return null;
  return (
    <section>
      <h2>{title}</h2>
      <dl class="pairs stacked">
        {pairs.map(([name, value]) => (
          <div key={name}>
            <dt>{shown(name)}</dt>
            <dd>{areUris ? <Uri value={value} /> : <Text value={value} max={300} />}</dd>
          </div>
        ))}
      </dl>
    </section>
  );
}

function Uri({ value }: { value: string }) {
  const place = placeOf(value);
  if (!place) return <Text value={value} />;
  // An address without an object below it is looked at as that of an object, too.
  return <Link {...folderPlace(place.bucket, place.key && place.key.replace(/\/*$/, "/"))}>{shown(value)}</Link>;
}

function Code({ title, text, note = "" }: { title: string; text: string; note?: string }) {
  return (
    <section>
      <h2>{title}</h2>
      {note && (
        <p class="quiet">
          <Text value={note} />
        </p>
      )}
      <Copy text={text} />
      <pre class="code" tabIndex={0} role="region" aria-label={title}>
        <Text value={text} max={20_000} lines />
      </pre>
    </section>
  );
}

function decoded([name, value]: [string, string]): [string, string] {
  return [name, plainValue(value)];
}

function indented(json: string): string {
  try {
    const value: unknown = JSON.parse(json || "{}");
    return value && Object.keys(value).length ? JSON.stringify(value, null, 2) : "";
  } catch {
    return json;
  }
}
