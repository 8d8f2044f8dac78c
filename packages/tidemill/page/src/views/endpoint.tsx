/** One endpoint: its variants and servers, its requests over time, its log, and a form that asks it. */

import { useState } from "preact/hooks";

import { describeEndpoint, endpointInstances, servedModels, type Endpoint, type VariantInstances } from "../endpoint_calls";
import { endpointCurves, WINDOWS } from "../endpoint_metrics";
import { useLoaded } from "../loaded";
import { setQuery } from "../location";
import { figure, time } from "../numbers";
import { CurveCharts } from "../parts/curves";
import { EndpointUpdate } from "../parts/endpoint_update";
import { Failure } from "../parts/failure";
import { Figures } from "../parts/figures";
import { Log } from "../parts/log";
import { RequestForm } from "../parts/request_form";
import { Resources } from "../parts/resources";
import { State } from "../parts/state";
import { Text } from "../parts/text";
import { tensorText } from "../request_body";
import type { ViewProps } from "../routes";
import { shown } from "../shown_text";

const INSTANCES_MS = 5000;
const CURVES_MS = 10_000;
const LOG_GROUP = "/aws/sagemaker/Endpoints/";

export default function EndpointView({ params, query }: ViewProps) {
  const name = params["name"] ?? "";
  const on = () => [{ kind: "endpoint" as const, names: [name] }];
  const endpoint = useLoaded(`endpoint ${name}`, (signal) => describeEndpoint(name, { signal }), { on });
  const instances = useLoaded(`instances ${name}`, (signal) => endpointInstances(name, { signal }), {
    on,
    every: () => INSTANCES_MS,
  });
  const value = endpoint.value;
  const variants = instances.value ?? [];
  return (
    <>
      <h1>{shown(name)}</h1>
      {endpoint.error !== undefined && <Failure error={endpoint.error} retry={endpoint.reload} />}
      {instances.error !== undefined && endpoint.error === undefined && <Failure error={instances.error} retry={instances.reload} />}
      {value && (
        <>
          <Facts endpoint={value} />
          <Variants endpoint={value} variants={variants} />
          {value.ProductionVariants && <Requests name={name} variants={value.ProductionVariants.map((each) => each.VariantName)} query={query} />}
          {value.ProductionVariants && variants.length > 0 && (
            <section>
              <h2>Ask</h2>
              <RequestForm endpoint={value} variants={variants} />
            </section>
          )}
          <section>
            <h2>Resources</h2>
            <Resources kind="endpoint" name={name} isLive={value.EndpointStatus !== "Failed"} />
          </section>
          <Logs name={name} variants={variants} query={query} />
          <EndpointUpdate endpoint={value} onChange={endpoint.reload} />
        </>
      )}
    </>
  );
}

function Facts({ endpoint }: { endpoint: Endpoint }) {
  const capture = endpoint.DataCaptureConfig;
  return (
    <>
      <Figures
        entries={[
          ["Status", <State value={endpoint.EndpointStatus} />],
          ["Configuration", shown(endpoint.EndpointConfigName)],
          ["Created", time(endpoint.CreationTime)],
          ["Changed", time(endpoint.LastModifiedTime)],
          ...(endpoint.PendingDeploymentSummary
            ? [["Starting", shown(endpoint.PendingDeploymentSummary.EndpointConfigName)] as const]
            : []),
          ...(endpoint.AsyncInferenceConfig
            ? [["Answers go to", <Text value={endpoint.AsyncInferenceConfig.OutputConfig.S3OutputPath} />] as const]
            : []),
          ...(capture ? [["Captured", <Text value={`${capture.CurrentSamplingPercentage} % to ${capture.DestinationS3Uri}`} />] as const] : []),
        ]}
      />
      {endpoint.FailureReason && (
        <p class="reason">
          <Text value={endpoint.FailureReason} lines />
        </p>
      )}
    </>
  );
}

interface VariantsProps {
  endpoint: Endpoint;
  variants: readonly VariantInstances[];
}

function Variants({ endpoint, variants }: VariantsProps) {
  return (
    <section>
      <h2>Variants</h2>
      {variants.length === 0 && <p class="quiet">None has begun yet.</p>}
      {variants.length > 0 && (
        <div class="wide" tabIndex={0} role="region" aria-label="Variants">
          <table class="plain">
            <thead>
              <tr>
                <th scope="col">Variant</th>
                <th scope="col">Model</th>
                <th scope="col" class="numeric">
                  Weight
                </th>
                <th scope="col">Instances</th>
                <th scope="col">Servers</th>
              </tr>
            </thead>
            <tbody>
              {variants.map((each) => (
                <Variant key={each.VariantName} endpoint={endpoint} variant={each} />
              ))}
            </tbody>
          </table>
        </div>
      )}
      {variants.map((each) => (
        <Models key={each.VariantName} endpoint={endpoint.EndpointName} variant={each} />
      ))}
    </section>
  );
}

function Variant({ endpoint, variant }: { endpoint: Endpoint; variant: VariantInstances }) {
  const described = endpoint.ProductionVariants?.find((each) => each.VariantName === variant.VariantName);
  const ready = described?.CurrentInstanceCount ?? variant.Instances.filter((each) => each.Ready).length;
  const wanted = described?.DesiredInstanceCount ?? variant.Instances.length;
  const { CurrentWeight, DesiredWeight } = described ?? {};
  const change = DesiredWeight === CurrentWeight || DesiredWeight === undefined ? "" : `, soon ${figure(DesiredWeight)}`;
  return (
    <tr>
      <td>{shown(variant.VariantName)}</td>
      <td>
        {shown(variant.ModelName)}
        {variant.MultiModel && <span class="quiet"> (several models)</span>}
      </td>
      <td class="numeric">{CurrentWeight === undefined ? "" : `${figure(CurrentWeight)}${change}`}</td>
      <td>
        {ready} of {wanted} ready{variant.Serverless && <span class="quiet"> (serverless)</span>}
      </td>
      <td>
        {variant.Instances.map((each) => (
          <div key={each.LogStreamName}>
            {shown(each.LogStreamName.slice(each.LogStreamName.indexOf("/") + 1))}{" "}
            <span class={each.Ready ? "status good" : "status running"}>{each.Ready ? "ready" : "starting"}</span>
            {each.RequestsInFlight > 0 && `, ${each.RequestsInFlight} requests in work`}
          </div>
        ))}
      </td>
    </tr>
  );
}

/** What a variant's server has loaded. */
function Models({ endpoint, variant }: { endpoint: string; variant: VariantInstances }) {
  const isReady = variant.Instances.some((each) => each.Ready);
  const models = useLoaded(`served ${variant.VariantName} ${isReady}`, (signal) =>
    isReady ? servedModels(endpoint, variant.VariantName, "", { signal }) : Promise.resolve([]),
  );
  if (!models.value?.length) return null;
  return (
    <details>
      <summary>
        Models of {shown(variant.VariantName)} ({models.value.length})
      </summary>
      {models.value.map((model) => (
        <div key={model.Name}>
          <h3>{shown(model.Name)}</h3>
          <p>Versions: {model.Versions.map((each) => `${shown(each.Version)} (${shown(each.State.toLowerCase())})`).join(", ")}</p>
          <ul>
            {model.Signatures.map((signature) => (
              <li key={signature.Name}>
                <strong>{shown(signature.Name)}</strong>:{" "}
                {shown(signature.Inputs.map((each) => `${each.Name} (${tensorText(each)})`).join("; "))} →{" "}
                {shown(signature.Outputs.map((each) => `${each.Name} (${tensorText(each)})`).join("; "))}
              </li>
            ))}
          </ul>
        </div>
      ))}
    </details>
  );
}

interface RequestsProps {
  name: string;
  variants: readonly string[];
  query: URLSearchParams;
}

function Requests({ name, variants, query }: RequestsProps) {
  const minutes = WINDOWS.find((each) => String(each[0]) === query.get("window"))?.[0] ?? WINDOWS[0]![0];
  const curves = useLoaded(
    `curves ${name} ${variants.join("/")} ${minutes}`,
    (signal) => endpointCurves(name, variants, minutes, { signal }),
    () => CURVES_MS,
  );
  return (
    <section>
      <h2>Requests</h2>
      <p class="inline-form">
        <label>
          Last{" "}
          <select value={minutes} onChange={(event) => setQuery({ window: event.currentTarget.value })}>
            {WINDOWS.map(([value, , title]) => (
              <option key={value} value={value}>
                {title}
              </option>
            ))}
          </select>
        </label>
        <span class="quiet">Counted since the start of the service.</span>
      </p>
      {curves.error !== undefined && <Failure error={curves.error} retry={curves.reload} />}
      {curves.value && (
        <CurveCharts
          x="time"
          charts={[
            { title: "Requests per second", series: curves.value.rate },
            { title: "Latency in ms", series: curves.value.latency },
            { title: "Errors per second", series: curves.value.errors },
          ]}
        />
      )}
    </section>
  );
}

interface LogsProps {
  name: string;
  variants: readonly VariantInstances[];
  query: URLSearchParams;
}

function Logs({ name, variants, query }: LogsProps) {
  const [opened, setOpened] = useState(query.has("log"));
  const streams = variants.flatMap((each) => each.Instances.map((instance) => instance.LogStreamName));
  const chosen = streams.find((each) => each === query.get("log")) ?? streams[0];
  if (chosen === undefined) return null;
  return (
    <section>
      <h2>Log</h2>
      {!opened && (
        <button type="button" onClick={() => setOpened(true)}>
          Show the log
        </button>
      )}
      {opened && (
        <>
          {streams.length > 1 && (
            <p class="inline-form">
              <label>
                Server{" "}
                <select value={chosen} onChange={(event) => setQuery({ log: event.currentTarget.value })}>
                  {streams.map((each) => (
                    <option key={each} value={each}>
                      {shown(each)}
                    </option>
                  ))}
                </select>
              </label>
            </p>
          )}
          <Log key={chosen} group={LOG_GROUP + name} stream={chosen} isLive />
        </>
      )}
    </section>
  );
}
