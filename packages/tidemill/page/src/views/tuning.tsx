/** A tuning job: its trainings, the best one, the objective over time, and which hyperparameters matter. */

import { useMemo, useState } from "preact/hooks";

import type { Interest } from "../changes";
import { decoded } from "../differences";
import { useLoaded } from "../loaded";
import { duration, figure, time } from "../numbers";
import { BrushFields } from "../parts/brush_fields";
import { Confirmed } from "../parts/confirmed";
import { Curves } from "../parts/curves";
import { Failure } from "../parts/failure";
import { Figures } from "../parts/figures";
import { Link } from "../parts/link";
import { Parallel } from "../parts/parallel";
import { Scatter } from "../parts/scatter";
import { State } from "../parts/state";
import { Text } from "../parts/text";
import { TrialTable } from "../parts/trial_table";
import type { ViewProps } from "../routes";
import { call } from "../service";
import { shown } from "../shown_text";
import { axesOf, isInside, objectiveOf, overTime, type Brush, type ParameterRanges, type TrialSummary } from "../trials";

interface Objective {
  Type: "Maximize" | "Minimize";
  MetricName: string;
}

interface TrainingDefinition {
  DefinitionName?: string;
  TuningObjective?: Objective;
  HyperParameterRanges?: ParameterRanges;
  StaticHyperParameters?: Record<string, string>;
}

interface TuningJob {
  HyperParameterTuningJobName: string;
  HyperParameterTuningJobStatus: string;
  HyperParameterTuningJobConfig: {
    Strategy: string;
    HyperParameterTuningJobObjective?: Objective;
    ParameterRanges?: ParameterRanges;
    ResourceLimits: { MaxNumberOfTrainingJobs?: number; MaxParallelTrainingJobs: number };
    TrainingJobEarlyStoppingType?: string;
  };
  TrainingJobDefinition?: TrainingDefinition;
  TrainingJobDefinitions?: readonly TrainingDefinition[];
  WarmStartConfig?: {
    WarmStartType: string;
    ParentHyperParameterTuningJobs: readonly { HyperParameterTuningJobName: string }[];
  };
  CreationTime: number;
  HyperParameterTuningEndTime?: number;
  TrainingJobStatusCounters: Record<string, number>;
  BestTrainingJob?: TrialSummary;
  OverallBestTrainingJob?: TrialSummary;
  FailureReason?: string;
}

interface Found {
  job: TuningJob;
  trials: TrialSummary[];
}

const PAGE = 100;

export default function Tuning({ params }: ViewProps) {
  const name = params["name"] ?? "";
  const { value, error, reload } = useLoaded(
    name,
    (signal) => found(name, signal),
    { on: (now) => [{ kind: "hyper-parameter-tuning-job", names: [name] }, ...runningTrainings(now)] },
  );
  return (
    <>
      <h1>{shown(name)}</h1>
      {error !== undefined && <Failure error={error} retry={reload} />}
      {value && <Job {...value} reload={reload} />}
    </>
  );
}

async function found(name: string, signal: AbortSignal): Promise<Found> {
  const input = { HyperParameterTuningJobName: name };
  const job = await call<TuningJob>("sagemaker", "DescribeHyperParameterTuningJob", input, { signal });
  const trials: TrialSummary[] = [];
  let token: string | undefined;
  do {
    const page = { ...input, MaxResults: PAGE, SortBy: "CreationTime", ...(token ? { NextToken: token } : {}) };
    const answer = await call<{ TrainingJobSummaries: TrialSummary[]; NextToken?: string }>(
      "sagemaker",
      "ListTrainingJobsForHyperParameterTuningJob",
      page,
      { signal },
    );
    trials.push(...answer.TrainingJobSummaries);
    token = answer.NextToken;
  } while (token);
  return { job, trials };
}

function runningTrainings(now: Found | undefined): Interest[] {
  const running = now?.trials.filter((trial) => ["InProgress", "Stopping"].includes(trial.TrainingJobStatus)) ?? [];
  return running.length ? [{ kind: "training-job", names: running.map((trial) => trial.TrainingJobName) }] : [];
}

function Job({ job, trials, reload }: Found & { reload: () => void }) {
  const config = job.HyperParameterTuningJobConfig;
  const definitions = job.TrainingJobDefinitions ?? (job.TrainingJobDefinition ? [job.TrainingJobDefinition] : []);
  const objective = config.HyperParameterTuningJobObjective ?? definitions[0]?.TuningObjective;
  const metric = objective?.MetricName ?? "objective";
  const stop = async (): Promise<void> => {
    await call("sagemaker", "StopHyperParameterTuningJob", { HyperParameterTuningJobName: job.HyperParameterTuningJobName });
    reload();
  };
  return (
    <>
      <p class="facts">
        <State value={job.HyperParameterTuningJobStatus} />
        <span>{config.Strategy}</span>
        <span>
          {objective?.Type === "Minimize" ? "minimizes" : "maximizes"} <code>{shown(metric)}</code>
        </span>
        <span>
          {trials.length} of {config.ResourceLimits.MaxNumberOfTrainingJobs ?? "any number of"} trainings,{" "}
          {config.ResourceLimits.MaxParallelTrainingJobs} at once
        </span>
        <span>created {time(job.CreationTime)}</span>
        {job.HyperParameterTuningEndTime && <span>took {duration(job.HyperParameterTuningEndTime - job.CreationTime)}</span>}
        {job.HyperParameterTuningJobStatus === "InProgress" && (
          <Confirmed label="Stop" question="Stop the tuning job and its running trainings?" run={stop} />
        )}
      </p>
      {job.FailureReason && (
        <p class="reason">
          <Text value={job.FailureReason} lines />
        </p>
      )}
      <Parents job={job} />
      {job.BestTrainingJob && <Best trial={job.BestTrainingJob} metric={metric} title="Best training" />}
      {job.OverallBestTrainingJob && job.OverallBestTrainingJob.TrainingJobName !== job.BestTrainingJob?.TrainingJobName && (
        <Best trial={job.OverallBestTrainingJob} metric={metric} title="Best training, parents included" />
      )}
      <Plots {...{ job, trials, metric, definitions }} maximizes={objective?.Type !== "Minimize"} />
    </>
  );
}

function Parents({ job }: { job: TuningJob }) {
  const warm = job.WarmStartConfig;
  if (!warm) return null;
  return (
    <p>
      Started from what is known of{" "}
      {warm.ParentHyperParameterTuningJobs.map((parent, i) => (
        <span key={parent.HyperParameterTuningJobName}>
          {i > 0 && ", "}
          <Link to={["tuning", parent.HyperParameterTuningJobName]}>{shown(parent.HyperParameterTuningJobName)}</Link>
        </span>
      ))}{" "}
      ({shown(warm.WarmStartType)}).
    </p>
  );
}

function Best({ trial, metric, title }: { trial: TrialSummary; metric: string; title: string }) {
  const value = objectiveOf(trial);
  return (
    <section class="best" aria-label={title}>
      <h2>{title}</h2>
      <p>
        <Link to={["jobs", "training", trial.TrainingJobName]}>{shown(trial.TrainingJobName)}</Link>:{" "}
        <strong>
          {shown(metric)} {value === undefined ? "" : figure(value)}
        </strong>
      </p>
      <Figures entries={Object.entries(trial.TunedHyperParameters).map(([name, text]) => [name, <Text value={decoded(text)} max={80} />])} />
    </section>
  );
}

interface PlotsProps {
  job: TuningJob;
  trials: readonly TrialSummary[];
  definitions: readonly TrainingDefinition[];
  metric: string;
  maximizes: boolean;
}

function Plots({ job, trials, definitions, metric, maximizes }: PlotsProps) {
  const [brushes, setBrushes] = useState<ReadonlyMap<string, Brush>>(new Map());
  const [chosen, setChosen] = useState("");
  const ranges = [job.HyperParameterTuningJobConfig.ParameterRanges ?? {}, ...definitions.map((each) => each.HyperParameterRanges ?? {})];
  const axes = useMemo(() => axesOf(ranges, trials, metric), [trials, metric]);
  const series = useMemo(() => {
    const { own, best, times } = overTime(trials, maximizes);
    return [
      { label: "best so far", points: best, times, style: "stepped" as const },
      { label: "each training", points: own, times, style: "points" as const },
    ];
  }, [trials, maximizes]);
  const best = job.BestTrainingJob?.TrainingJobName;
  const objective = axes.at(-1)?.name === metric ? axes.at(-1)! : undefined;
  const hyperparameters = objective ? axes.slice(0, -1) : axes;
  const x = hyperparameters.find((axis) => axis.name === chosen) ?? hyperparameters[0];
  const onBrush = (name: string, brush: Brush | null): void => {
    const next = new Map(brushes);
    if (brush) next.set(name, brush);
    else next.delete(name);
    setBrushes(next);
  };
  const inside = trials.filter((trial) => isInside(trial, axes, brushes));
  return (
    <>
      {objective && (
        <>
          <h2>Objective over time</h2>
          <Curves title={metric} series={series} x="step" />
        </>
      )}
      {axes.length > 1 && (
        <>
          <h2>Hyperparameters</h2>
          <Parallel {...{ axes, trials, best, brushes, onBrush }} />
          <BrushFields {...{ axes, brushes, onBrush }} />
        </>
      )}
      {x && objective && (
        <>
          <label>
            <code>{shown(metric)}</code> by{" "}
            <select value={x.name} onChange={(event) => setChosen(event.currentTarget.value)}>
              {hyperparameters.map((axis) => (
                <option key={axis.name} value={axis.name}>
                  {shown(axis.name)}
                </option>
              ))}
            </select>
          </label>
          <Scatter {...{ x, axes, brushes, trials, best }} y={objective} />
        </>
      )}
      <h2>Trainings</h2>
      <p>
        {inside.length === trials.length ? `${trials.length} trainings` : `${inside.length} of ${trials.length} trainings are selected`}{" "}
        {brushes.size > 0 && (
          <button type="button" onClick={() => setBrushes(new Map())}>
            Select all
          </button>
        )}
      </p>
      <TrialTable {...{ best, metric }} trials={inside} names={hyperparameters.map((axis) => axis.name)} />
    </>
  );
}
