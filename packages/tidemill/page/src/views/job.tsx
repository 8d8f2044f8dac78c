import { describeJob, type JobDescription } from "../job_calls";
import { isKind, isLive, KINDS, STORED, type Kind } from "../job_kinds";
import type { Request } from "../job_request";
import { jobId, lasted } from "../job_rows";
import { useLoaded } from "../loaded";
import { go, href } from "../location";
import { metricCurves } from "../metrics";
import { duration, time } from "../numbers";
import { Artifacts } from "../parts/artifacts";
import { CurveCharts } from "../parts/curves";
import { Failure } from "../parts/failure";
import { FailureReason } from "../parts/failure_reason";
import { JobActions } from "../parts/job_actions";
import { JobRequest, JobSettings, LastMetrics } from "../parts/job_request";
import { Link } from "../parts/link";
import { Log } from "../parts/log";
import { Phases } from "../parts/phases";
import { Resources } from "../parts/resources";
import { RunAgain } from "../parts/run_again";
import { Scalars } from "../parts/scalars";
import { Status } from "../parts/status";
import type { ViewProps } from "../routes";
import { currentSession } from "../service";
import { cutMiddle, shown } from "../shown_text";
import { useNow } from "../visible";
import "../jobs.css";

const LIVE_LOOK_MS = 5000;
const METRICS_LOOK_MS = 5000;
const SAMPLED = { training: "training-job", processing: "processing-job", transform: "transform-job" } as const;
const TABS = [
  ["log", "Log"],
  ["metrics", "Metrics"],
  ["resources", "Resources"],
  ["settings", "Settings"],
  ["artifacts", "Artifacts"],
  ["request", "Request"],
  ["again", "Run again with …"],
] as const;

/** The view of a tuning job has the rest. */
const TUNING_TABS: readonly string[] = ["request", "again"];

/** One job: training, processing or transform; of a tuning job only its request. */
export default function Job({ params, query }: ViewProps) {
  const { kind = "", name = "" } = params;
  if (!isKind(kind)) return <p>There is no kind of job “{shown(kind)}”.</p>;
  return <Described key={jobId(kind, name)} kind={kind} name={name} query={query} />;
}

function Described({ kind, name, query }: { kind: Kind; name: string; query: URLSearchParams }) {
  const { value: found, error, reload } = useLoaded(name, (signal) => describeJob(kind, name, signal), {
    on: () => [{ kind: STORED[kind], names: [name] }],
    // The place in the queue and the metrics change without a change of the job.
    every: ({ Job: row }) => (isLive(row.Status) ? LIVE_LOOK_MS : undefined),
  });
  const live = found === undefined || isLive(found.Job.Status);
  const now = useNow(live);
  const tab = query.get("tab") ?? (kind === "tuning" ? "request" : "log");
  const heading = (
    <h1 title={shown(name)}>
      {KINDS[kind].title} job {shown(cutMiddle(name, 63))}
    </h1>
  );
  if (!found) {
    return (
      <>
        {heading}
        {error !== undefined && <Failure error={error} retry={reload} />}
      </>
    );
  }
  return (
    <>
      {heading}
      <Head found={found} now={now} onChange={reload} />
      {error !== undefined && <Failure error={error} retry={reload} />}
      {found.Job.FailureReason && <FailureReason reason={found.Job.FailureReason} />}
      {found.Phases && <Phases phases={found.Phases} now={now} />}
      <Tabs kind={kind} name={name} chosen={tab} />
      <Content kind={kind} name={name} found={found} query={query} tab={tab} isLive={live} />
    </>
  );
}

function Head({ found, now, onChange }: { found: JobDescription; now: number; onChange: () => void }) {
  const { Job: row, Queue } = found;
  return (
    <>
      <p class="facts">
        <Status row={row} place={Queue[0]?.Place} />
        <span>{duration(lasted(row, now))}</span>
        <span>{(row.Instances ?? []).map((each) => `${each.InstanceCount} × ${each.InstanceType}`).join(", ")}</span>
        <span>created {time(row.CreationTime)}</span>
        {(row.Attempt ?? 1) > 1 && <span>attempt {row.Attempt}</span>}
        {row.TuningJobName && (
          <span>
            of the tuning job <Link to={["tuning", row.TuningJobName]}>{shown(row.TuningJobName)}</Link>
          </span>
        )}
      </p>
      <div class="toolbar">
        <JobActions
          jobs={[row]}
          onDone={(deleted) => (deleted.length ? go(href(["jobs"])) : onChange())}
        />
        {row.Kind === "tuning" && <Link to={["tuning", row.Name]}>Trainings</Link>}
        {row.Kind === "training" && (
          <Link to={["compare"]} query={{ job: [row.Name] }}>
            Compare
          </Link>
        )}
      </div>
    </>
  );
}

function Tabs({ kind, name, chosen }: { kind: Kind; name: string; chosen: string }) {
  const tabs = TABS.filter(
    ([id]) => (id !== "again" || !currentSession()?.readOnly) && (kind !== "tuning" || TUNING_TABS.includes(id)),
  );
  return (
    <nav class="tabs" aria-label="Parts of the job">
      {tabs.map(([id, title]) => (
        <Link
          key={id}
          to={["jobs", kind, name]}
          query={{ tab: id === "log" ? null : id }}
          aria-current={id === chosen ? "page" : undefined}
        >
          {title}
        </Link>
      ))}
    </nav>
  );
}

interface ContentProps {
  kind: Kind;
  name: string;
  found: JobDescription;
  query: URLSearchParams;
  tab: string;
  isLive: boolean;
}

function Content({ kind, name, found, query, tab, isLive: live }: ContentProps) {
  const request = JSON.parse(found.Request) as Request;
  const tags = found.Job.Tags ?? {};
  switch (tab) {
    case "metrics":
      return <Metrics found={found} isLive={live} />;
    case "resources":
      return kind === "tuning" ? null : <Resources kind={SAMPLED[kind]} name={name} isLive={live} />;
    case "settings":
      return <JobSettings request={request} tags={tags} />;
    case "artifacts":
      return <Artifacts kind={kind} name={name} request={request} isLive={live} />;
    case "request":
      return <JobRequest kind={kind} request={request} tags={tags} record={found.Record ?? ""} />;
    case "again":
      return <RunAgain kind={kind} name={name} request={request} tags={tags} />;
    default:
      return <Logs kind={kind} name={name} found={found} chosen={query.get("stream")} isLive={live} />;
  }
}

/** The last value of each metric, and how it came to it. */
function Metrics({ found, isLive: live }: { found: JobDescription; isLive: boolean }) {
  const { Name, Kind: kind, Metrics: metrics = {} } = found.Job;
  const curves = useLoaded(
    Name,
    (signal) => (kind === "training" ? metricCurves(Name, { signal }) : Promise.resolve([])),
    { every: () => (live ? METRICS_LOOK_MS : undefined) },
  );
  if (curves.value && !curves.value.length && !Object.keys(metrics).length) {
    return (
      <>
        <p>The log has no values of metrics. A job that names MetricDefinitions has some.</p>
        {kind === "training" && <Scalars job={Name} isLive={live} />}
      </>
    );
  }
  return (
    <>
      {curves.error !== undefined && <Failure error={curves.error} />}
      <LastMetrics metrics={metrics} />
      {curves.value && curves.value.length > 0 && <CurveCharts charts={curves.value} x="step" />}
      {kind === "training" && <Scalars job={Name} isLive={live} />}
    </>
  );
}

interface LogsProps {
  kind: Kind;
  name: string;
  found: JobDescription;
  chosen: string | null;
  isLive: boolean;
}

/** The logs of the instances, of which one is shown. */
function Logs({ kind, name, found, chosen, isLive: live }: LogsProps) {
  const streams = found.LogStreams ?? [];
  const stream = streams.find((each) => instanceOf(each) === chosen) ?? streams[0];
  if (!stream || !found.LogGroup) return <p>This job has no log.</p>;
  return (
    <>
      {streams.length > 1 && (
        <nav class="tabs" aria-label="Instances">
          {streams.map((each) => (
            <Link
              key={each}
              to={["jobs", kind, name]}
              query={{ stream: instanceOf(each) }}
              aria-current={each === stream ? "page" : undefined}
            >
              {shown(instanceOf(each))}
            </Link>
          ))}
        </nav>
      )}
      <Log key={stream} group={found.LogGroup} stream={stream} isLive={live} />
    </>
  );
}

/** For example `algo-1` of `digits/algo-1-1700000000`. */
function instanceOf(stream: string): string {
  return stream.slice(stream.indexOf("/") + 1).replace(/-\d+$/, (end) => (/^-\d{9,}$/.test(end) ? "" : end));
}
