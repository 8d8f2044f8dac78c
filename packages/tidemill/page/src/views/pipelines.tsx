/** Pipelines, the executions of one, and an execution as a graph. */

import { useState } from "preact/hooks";

import { nameInArn } from "../arn";
import { useLoaded } from "../loaded";
import { go, href } from "../location";
import { time } from "../numbers";
import { own } from "../own";
import { ExecutionView } from "../parts/execution";
import { Failure } from "../parts/failure";
import { Graph } from "../parts/graph";
import { Link } from "../parts/link";
import { PlainTable } from "../parts/plain_table";
import { State } from "../parts/state";
import { Text } from "../parts/text";
import { definitionOf, type Definition, type Parameter } from "../pipeline";
import { rowsUpTo, useRows } from "../row_pages";
import type { ViewProps } from "../routes";
import { call, currentSession } from "../service";
import { shown } from "../shown_text";

interface PipelineSummary {
  PipelineName: string;
  PipelineDisplayName?: string;
  PipelineDescription?: string;
  CreationTime: number;
  LastExecutionTime?: number;
}

interface Pipeline {
  PipelineArn: string;
  PipelineDisplayName?: string;
  PipelineDescription?: string;
  PipelineDefinition: string;
  LastModifiedTime: number;
}

interface ExecutionSummary {
  PipelineExecutionArn: string;
  PipelineExecutionDisplayName?: string;
  PipelineExecutionStatus: string;
  StartTime: number;
  PipelineExecutionFailureReason?: string;
}

export default function Pipelines({ params, query }: ViewProps) {
  const { name, execution } = params;
  if (name && execution) return <ExecutionView pipeline={name} id={execution} step={query.get("step")} />;
  return name ? <OnePipeline name={name} /> : <AllPipelines />;
}

function AllPipelines() {
  const { value, error, reload, more } = useRows(
    "pipelines",
    (limit, signal) => rowsUpTo<PipelineSummary>("ListPipelines", "PipelineSummaries", {}, limit, signal),
    { on: () => [{ kind: "pipeline" }] },
  );
  return (
    <>
      <h1>Pipelines</h1>
      {error !== undefined && <Failure error={error} retry={reload} />}
      {value && !value.rows.length && <p class="quiet">There are no pipelines.</p>}
      {value && value.rows.length > 0 && (
        <PlainTable label="Pipelines" titles={["Pipeline", "Description", "Last execution", "Created"]}>
              {value.rows.map((each) => (
                <tr key={each.PipelineName}>
                  <th scope="row">
                    <Link to={["pipelines", each.PipelineName]}>{shown(each.PipelineDisplayName ?? each.PipelineName)}</Link>
                  </th>
                  <td>
                    <Text value={each.PipelineDescription ?? ""} max={120} />
                  </td>
                  <td>{each.LastExecutionTime ? time(each.LastExecutionTime) : "never"}</td>
                  <td>{time(each.CreationTime)}</td>
                </tr>
              ))}
            </PlainTable>
      )}
      {value?.token && (
        <button type="button" onClick={more}>
          Show more
        </button>
      )}
    </>
  );
}

function OnePipeline({ name }: { name: string }) {
  const { value: pipeline, error, reload } = useLoaded(
    name,
    (signal) => call<Pipeline>("sagemaker", "DescribePipeline", { PipelineName: name }, { signal }),
    { on: () => [{ kind: "pipeline", names: [name] }] },
  );
  const [chosen, setChosen] = useState<string | null>(null);
  const definition = pipeline && definitionOf(pipeline.PipelineDefinition);
  const step = definition?.steps.find((each) => each.name === chosen);
  return (
    <>
      <h1>{shown(pipeline?.PipelineDisplayName ?? name)}</h1>
      {error !== undefined && <Failure error={error} retry={reload} />}
      {pipeline?.PipelineDescription && (
        <p>
          <Text value={pipeline.PipelineDescription} lines />
        </p>
      )}
      {definition && !currentSession()?.readOnly && <StartForm name={name} definition={definition} />}
      {pipeline && <Executions name={name} />}
      {definition && (
        <>
          <h2>Steps</h2>
          <Graph steps={definition.steps} statuses={new Map()} chosen={chosen} onChoose={setChosen} />
          {step && (
            <p>
              <strong>{shown(step.name)}</strong> ({shown(step.type)}){" "}
              {step.needs.length ? `needs ${step.needs.map((each) => shown(each)).join(", ")}` : "needs no other step"}
            </p>
          )}
          <details>
            <summary>Definition</summary>
            <pre class="wide" tabIndex={0}>
              {shown(indented(pipeline.PipelineDefinition), { lines: true })}
            </pre>
          </details>
        </>
      )}
    </>
  );
}

function indented(text: string): string {
  return JSON.stringify(JSON.parse(text), null, 2);
}

/** A form that starts an execution; its fields are the parameters, with their initial values. */
function StartForm({ name, definition }: { name: string; definition: Definition }) {
  const [values, setValues] = useState<Record<string, string>>({});
  const [error, setError] = useState<unknown>();
  const start = async (): Promise<void> => {
    setError(undefined);
    // What was not changed keeps its default, also if the default changes meanwhile.
    const PipelineParameters = Object.entries(values).map(([Name, Value]) => ({ Name, Value }));
    try {
      const { PipelineExecutionArn } = await call<{ PipelineExecutionArn: string }>("sagemaker", "StartPipelineExecution", {
        PipelineName: name,
        ClientRequestToken: requestToken(),
        ...(PipelineParameters.length ? { PipelineParameters } : {}),
      });
      go(href(["pipelines", name, executionIn(PipelineExecutionArn)]));
    } catch (reason) {
      setError(reason);
    }
  };
  return (
    <details>
      <summary>Start an execution</summary>
      <form
        class="fields"
        onSubmit={(event) => {
          event.preventDefault();
          void start();
        }}
      >
        {definition.parameters.map((parameter) => (
          <ParameterField
            key={parameter.name}
            parameter={parameter}
            value={own(values, parameter.name) ?? parameter.initial}
            onInput={(value) => setValues({ ...values, [parameter.name]: value })}
          />
        ))}
        <button type="submit" class="primary">
          Start
        </button>
      </form>
      {error !== undefined && <Failure error={error} />}
    </details>
  );
}

function ParameterField({ parameter, value, onInput }: { parameter: Parameter; value: string; onInput: (value: string) => void }) {
  const choices = parameter.choices ?? (parameter.type === "Boolean" ? ["true", "false"] : undefined);
  return (
    <label>
      {shown(parameter.name)} <span class="quiet">{shown(parameter.type)}</span>{" "}
      {choices ? (
        <select value={value} onChange={(event) => onInput(event.currentTarget.value)}>
          {!choices.includes(value) && <option value={value}>{shown(value)}</option>}
          {choices.map((choice) => (
            <option key={choice} value={choice}>
              {shown(choice)}
            </option>
          ))}
        </select>
      ) : (
        <input value={value} spellcheck={false} onInput={(event) => onInput(event.currentTarget.value)} />
      )}
    </label>
  );
}

function Executions({ name }: { name: string }) {
  const { value, error, reload, more } = useRows(
    name,
    (limit, signal) => rowsUpTo<ExecutionSummary>("ListPipelineExecutions", "PipelineExecutionSummaries", { PipelineName: name }, limit, signal),
    { on: () => [{ kind: "pipeline-execution" }] },
  );
  return (
    <>
      <h2>Executions</h2>
      {error !== undefined && <Failure error={error} retry={reload} />}
      {value && !value.rows.length && <p class="quiet">It was not executed yet.</p>}
      {value && value.rows.length > 0 && (
        <PlainTable label="Executions" titles={["Execution", "Status", "Started", "Reason"]}>
              {value.rows.map((each) => (
                <tr key={each.PipelineExecutionArn}>
                  <th scope="row">
                    <Link to={["pipelines", name, executionIn(each.PipelineExecutionArn)]}>
                      {shown(each.PipelineExecutionDisplayName ?? executionIn(each.PipelineExecutionArn))}
                    </Link>
                  </th>
                  <td>
                    <State value={each.PipelineExecutionStatus} />
                  </td>
                  <td>{time(each.StartTime)}</td>
                  <td>
                    <Text value={each.PipelineExecutionFailureReason ?? ""} max={200} />
                  </td>
                </tr>
              ))}
            </PlainTable>
      )}
      {value?.token && (
        <button type="button" onClick={more}>
          Show more
        </button>
      )}
    </>
  );
}

function executionIn(arn: string): string {
  return nameInArn(arn).split("/").at(-1)!;
}

/** A token that makes a request safe to repeat: AWS wants 32 characters. */
function requestToken(): string {
  return crypto.randomUUID();
}
