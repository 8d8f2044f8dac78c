/** One version of a model package: its approval, its metrics, its data, and where it comes from. */

import { useState } from "preact/hooks";

import { useLoaded } from "../loaded";
import { time } from "../numbers";
import { objectLink, placeOf } from "../objects";
import { call, currentSession } from "../service";
import { shown } from "../shown_text";
import { DeployForm } from "./deploy_form";
import { Download } from "./download";
import { Failure } from "./failure";
import { Figures } from "./figures";
import { Lineage } from "./lineage";
import { Link } from "./link";
import { ModelMetrics, type MetricSources } from "./model_metrics";
import { State } from "./state";
import { Text } from "./text";

interface Container {
  Image?: string;
  ModelDataUrl?: string;
  Framework?: string;
  FrameworkVersion?: string;
  Environment?: Record<string, string>;
}

interface ModelPackage {
  ModelPackageArn: string;
  ModelPackageDescription?: string;
  ModelApprovalStatus?: string;
  ApprovalDescription?: string;
  CreationTime: number;
  LastModifiedTime?: number;
  LastModifiedBy?: { UserProfileName?: string; IamIdentity?: { Arn?: string } };
  InferenceSpecification?: { Containers: readonly Container[]; SupportedContentTypes?: readonly string[] };
  ModelMetrics?: MetricSources;
  CustomerMetadataProperties?: Record<string, string>;
  MetadataProperties?: Record<string, string>;
  ModelLifeCycle?: { Stage: string; StageStatus: string };
}

const APPROVALS = ["Approved", "Rejected", "PendingManualApproval"];

export function ModelVersion({ name, group }: { name: string; group: string }) {
  const { value, error, reload } = useLoaded(
    name,
    (signal) => call<ModelPackage>("sagemaker", "DescribeModelPackage", { ModelPackageName: name }, { signal }),
    { on: () => [{ kind: "model-package", names: [name] }] },
  );
  return (
    <>
      <p class="trail">
        <Link to={["registry"]}>Registry</Link> / <Link to={["registry", group]}>{shown(group)}</Link>
      </p>
      <h1>{shown(name.replace("/", " version "))}</h1>
      {error !== undefined && <Failure error={error} retry={reload} />}
      {value && <Details found={value} name={name} reload={reload} />}
    </>
  );
}

function Details({ found, name, reload }: { found: ModelPackage; name: string; reload: () => void }) {
  const containers = found.InferenceSpecification?.Containers ?? [];
  const stage = found.ModelLifeCycle;
  return (
    <>
      <p class="facts">
        <State value={found.ModelApprovalStatus ?? ""} />
        {found.ApprovalDescription && <Text value={found.ApprovalDescription} />}
        <span>registered {time(found.CreationTime)}</span>
        {found.LastModifiedTime !== undefined && (
          <span>
            changed {time(found.LastModifiedTime)} by {shown(found.LastModifiedBy?.IamIdentity?.Arn?.split("/").at(-1) ?? "?")}
          </span>
        )}
        {stage && <span>{shown(`${stage.Stage}: ${stage.StageStatus}`)}</span>}
      </p>
      {found.ModelPackageDescription && (
        <p>
          <Text value={found.ModelPackageDescription} lines />
        </p>
      )}
      <Approval key={found.ModelApprovalStatus} found={found} reload={reload} />
      <h2>Model</h2>
      {containers.map((container, i) => (
        <Contained key={i} container={container} />
      ))}
      {found.ModelApprovalStatus === "Approved" && containers.length === 1 && <DeployForm arn={found.ModelPackageArn} name={name} />}
      {found.ModelMetrics && <ModelMetrics sources={found.ModelMetrics} />}
      <Properties title="Metadata" values={{ ...found.CustomerMetadataProperties, ...found.MetadataProperties }} />
      <Lineage arn={found.ModelPackageArn} archive={containers[0]?.ModelDataUrl} />
    </>
  );
}

/** A form that approves a version, or takes the approval back. */
function Approval({ found, reload }: { found: ModelPackage; reload: () => void }) {
  const [status, setStatus] = useState(found.ModelApprovalStatus ?? "");
  const [comment, setComment] = useState("");
  const [error, setError] = useState<unknown>();
  if (currentSession()?.readOnly) return null;
  const save = async (): Promise<void> => {
    setError(undefined);
    try {
      await call("sagemaker", "UpdateModelPackage", {
        ModelPackageArn: found.ModelPackageArn,
        ModelApprovalStatus: status,
        ...(comment ? { ApprovalDescription: comment } : {}),
      });
      reload();
    } catch (reason) {
      setError(reason);
    }
  };
  return (
    <form
      class="inline-form"
      onSubmit={(event) => {
        event.preventDefault();
        void save();
      }}
    >
      <label>
        Approval{" "}
        <select value={status} onChange={(event) => setStatus(event.currentTarget.value)}>
          {APPROVALS.map((each) => (
            <option key={each} value={each}>
              {each}
            </option>
          ))}
        </select>
      </label>
      <label>
        Comment <input value={comment} maxLength={1024} onInput={(event) => setComment(event.currentTarget.value)} />
      </label>
      <button type="submit" disabled={status === found.ModelApprovalStatus}>
        Change approval
      </button>
      {error !== undefined && <Failure error={error} />}
    </form>
  );
}

function Contained({ container }: { container: Container }) {
  const place = placeOf(container.ModelDataUrl);
  const data = place?.key && (
    <>
      <Link {...objectLink(place)}>{shown(container.ModelDataUrl!)}</Link> <Download place={place} />
    </>
  );
  return (
    <>
      <Figures
        entries={[
          ["Image", container.Image && <Text value={container.Image} />],
          ["Data", data ?? (container.ModelDataUrl && <Text value={container.ModelDataUrl} />)],
          ["Framework", container.Framework && shown(`${container.Framework} ${container.FrameworkVersion ?? ""}`)],
        ]}
      />
      <Properties title="Environment" values={container.Environment ?? {}} />
    </>
  );
}

function Properties({ title, values }: { title: string; values: Record<string, string> }) {
  const entries = Object.entries(values);
  if (!entries.length) return null;
  return (
    <>
      <h2>{title}</h2>
      <Figures entries={entries.map(([name, value]) => [name, <Text value={value} max={200} />])} />
    </>
  );
}
