/** One execution of a pipeline: its graph with the states of the steps, and what one can do with it. */

import type { ComponentChildren } from "preact";

import { nameInArn, pathOfArn } from "../arn";
import { useLoaded } from "../loaded";
import { setQuery } from "../location";
import { duration, time } from "../numbers";
import { definitionOf, resourceOf, statusOf, type Definition, type Step, type StepState } from "../pipeline";
import { call } from "../service";
import { shown } from "../shown_text";
import { Confirmed } from "./confirmed";
import { Failure } from "./failure";
import { Figures } from "./figures";
import { Graph } from "./graph";
import { Link } from "./link";
import { State } from "./state";
import { Text } from "./text";

interface Execution {
  PipelineExecutionArn: string;
  PipelineExecutionDisplayName?: string;
  PipelineExecutionStatus: string;
  PipelineVersionId?: number;
  CreationTime: number;
  LastModifiedTime: number;
  FailureReason?: string;
  SelectiveExecutionConfig?: { SelectedSteps: readonly { StepName: string }[] };
}

interface Shown {
  execution: Execution;
  definition: Definition;
  states: Map<string, StepState>;
  parameters: readonly { Name: string; Value: string }[];
}

interface ExecutionProps {
  pipeline: string;
  id: string;
  /** The step whose details are shown. */
  step: string | null;
}

export function ExecutionView({ pipeline, id, step }: ExecutionProps) {
  const { value, error, reload } = useLoaded(
    `${pipeline}/${id}`,
    (signal) => shownOf(pipeline, id, signal),
    { on: () => [{ kind: "pipeline-execution", names: [`pipeline/${pipeline}/execution/${id}`] }] },
  );
  return (
    <>
      <p class="trail">
        <Link to={["pipelines", pipeline]}>{shown(pipeline)}</Link>
      </p>
      <h1>{shown(value?.execution.PipelineExecutionDisplayName ?? id)}</h1>
      {error !== undefined && <Failure error={error} retry={reload} />}
      {value && <Details {...value} step={step} reload={reload} />}
    </>
  );
}

async function shownOf(pipeline: string, id: string, signal: AbortSignal): Promise<Shown> {
  const { PipelineArn } = await call<{ PipelineArn: string }>("sagemaker", "DescribePipeline", { PipelineName: pipeline }, { signal });
  const input = { PipelineExecutionArn: `${PipelineArn}/execution/${id}` };
  const [execution, { PipelineDefinition }, steps, parameters] = await Promise.all([
    call<Execution>("sagemaker", "DescribePipelineExecution", input, { signal }),
    call<{ PipelineDefinition: string }>("sagemaker", "DescribePipelineDefinitionForExecution", input, { signal }),
    call<{ PipelineExecutionSteps: StepState[] }>("sagemaker", "ListPipelineExecutionSteps", { ...input, MaxResults: 100 }, { signal }),
    call<{ PipelineParameters: { Name: string; Value: string }[] }>(
      "sagemaker",
      "ListPipelineParametersForExecution",
      { ...input, MaxResults: 100 },
      { signal },
    ),
  ]);
  const states = new Map(steps.PipelineExecutionSteps.map((state) => [state.StepName, state]));
  return { execution, states, definition: definitionOf(PipelineDefinition), parameters: parameters.PipelineParameters };
}

function isRunning(execution: Execution): boolean {
  return ["Executing", "Stopping"].includes(execution.PipelineExecutionStatus);
}

function Details({ execution, definition, states, parameters, step, reload }: Shown & { step: string | null; reload: () => void }) {
  const { PipelineExecutionArn: arn, PipelineExecutionStatus: status } = execution;
  const ended = !isRunning(execution);
  const statuses = new Map(definition.steps.map((each) => [each.name, statusOf(each, states, ended)]));
  const chosen = definition.steps.find((each) => each.name === step);
  const act = async (operation: string): Promise<void> => {
    await call("sagemaker", operation, { PipelineExecutionArn: arn, ClientRequestToken: crypto.randomUUID() });
    reload();
  };
  return (
    <>
      <p class="facts">
        <State value={status} />
        <span>started {time(execution.CreationTime)}</span>
        {ended && <span>took {duration(execution.LastModifiedTime - execution.CreationTime)}</span>}
        {execution.PipelineVersionId !== undefined && <span>version {execution.PipelineVersionId}</span>}
        {status === "Executing" && (
          <Confirmed label="Stop" question="Stop the execution and its running jobs?" run={() => act("StopPipelineExecution")} />
        )}
        {["Failed", "Stopped"].includes(status) && (
          <Confirmed label="Retry" question="Run again the steps that have not succeeded?" run={() => act("RetryPipelineExecution")} />
        )}
      </p>
      {execution.FailureReason && (
        <p class="reason">
          <Text value={execution.FailureReason} lines />
        </p>
      )}
      <h2>Steps</h2>
      <Graph steps={definition.steps} statuses={statuses} chosen={step} onChoose={(name) => setQuery({ step: name === step ? null : name })} />
      {chosen && <StepDetails step={chosen} state={states.get(chosen.name)} status={statuses.get(chosen.name)!} />}
      {parameters.length > 0 && (
        <>
          <h2>Parameters</h2>
          <Figures entries={parameters.map(({ Name, Value }) => [Name, <Text value={Value} max={200} />])} />
        </>
      )}
    </>
  );
}

function StepDetails({ step, state, status }: { step: Step; state: StepState | undefined; status: string }) {
  const resource = resourceOf(state);
  const reused = state?.CacheHitResult ?? state?.SelectiveExecutionResult;
  const facts: [string, ComponentChildren][] = [
    ["Type", shown(step.type)],
    ["Status", <State value={status} />],
    ["Needs", step.needs.map((each) => shown(each)).join(", ")],
    ["Attempts", state?.AttemptCount && state.AttemptCount > 1 ? state.AttemptCount : ""],
    ["Started", state && time(state.StartTime)],
    ["Took", state?.EndTime && duration(state.EndTime - state.StartTime)],
    ["Outcome", state?.Metadata?.["Condition"]?.Outcome],
    ["Message", state?.Metadata?.["Fail"]?.ErrorMessage && <Text value={state.Metadata["Fail"].ErrorMessage} lines />],
    ["Result of", reused && <ArnLink arn={reused.SourcePipelineExecutionArn} />],
    [resource?.kind ?? "", resource && <ArnLink arn={resource.arn} />],
    ["Reason", state?.FailureReason && <Text value={state.FailureReason} lines />],
  ];
  return (
    <section class="step" aria-label={`Step ${shown(step.name)}`}>
      <h3>{shown(step.title)}</h3>
      {state?.StepDescription && <Text value={state.StepDescription} lines />}
      <Figures entries={facts} />
    </section>
  );
}

function ArnLink({ arn }: { arn: string }) {
  const path = pathOfArn(arn);
  const name = shown(nameInArn(arn));
  return path ? <Link to={path}>{name}</Link> : <>{name}</>;
}
