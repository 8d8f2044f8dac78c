/** A pipeline's definition as a graph: its steps, what each needs, and the states of an execution. */

/** One step of a definition. `needs` has the steps that must have succeeded before; a branch belongs to a condition. */
export interface Step {
  name: string;
  title: string;
  type: string;
  needs: readonly string[];
  branch?: { condition: string; outcome: "True" | "False" };
}

/** A parameter of a pipeline. */
export interface Parameter {
  name: string;
  type: string;
  initial: string;
  choices?: readonly string[];
}

export interface Definition {
  parameters: readonly Parameter[];
  steps: readonly Step[];
}

/** A step of an execution, as ListPipelineExecutionSteps shows it. */
export interface StepState {
  StepName: string;
  StepDisplayName?: string;
  StepDescription?: string;
  StepStatus: string;
  StartTime: number;
  EndTime?: number;
  AttemptCount?: number;
  FailureReason?: string;
  CacheHitResult?: { SourcePipelineExecutionArn: string };
  SelectiveExecutionResult?: { SourcePipelineExecutionArn: string };
  Metadata?: Record<string, { Arn?: string; Outcome?: string; ErrorMessage?: string }>;
}

interface WireStep {
  Name: string;
  Type: string;
  DisplayName?: string;
  DependsOn?: readonly string[] | null;
  Arguments: Record<string, unknown>;
}

interface WireParameter {
  Name: string;
  Type: string;
  DefaultValue?: unknown;
  EnumValues?: readonly unknown[];
}

/** Return the steps and parameters of a definition's JSON text, which the service has checked. */
export function definitionOf(text: string): Definition {
  const document = JSON.parse(text) as { Parameters?: readonly WireParameter[] | null; Steps: readonly WireStep[] };
  const parameters = (document.Parameters ?? []).map((each) => ({
    name: each.Name,
    type: each.Type,
    initial: each.DefaultValue == null ? "" : String(each.DefaultValue),
    ...(each.EnumValues ? { choices: each.EnumValues.map(String) } : {}),
  }));
  return { parameters, steps: stepsOf(document.Steps) };
}

/** Return how a step is shown: its status, or why an execution that has ended did not begin it. */
export function statusOf(step: Step, states: ReadonlyMap<string, StepState>, ended: boolean): string {
  const state = states.get(step.name);
  if (state) return state.StepStatus;
  if (!ended && !isOtherBranch(step, states)) return "Waiting";
  return "NotExecuted";
}

/** Return the ARN of what a step created, and its kind as in the step's Metadata. */
export function resourceOf(state: StepState | undefined): { kind: string; arn: string } | undefined {
  for (const [kind, { Arn }] of Object.entries(state?.Metadata ?? {})) {
    if (Arn) return { kind, arn: Arn };
  }
  return undefined;
}

function stepsOf(found: readonly WireStep[], branch?: Step["branch"]): Step[] {
  return found.flatMap((each) => {
    const own: Record<string, unknown> = { ...each.Arguments };
    const branches = { True: own["IfSteps"], False: own["ElseSteps"] };
    if (each.Type === "Condition") {
      delete own["IfSteps"];
      delete own["ElseSteps"];
    }
    const needs = new Set([...(each.DependsOn ?? []), ...stepsReadBy(own), ...(branch ? [branch.condition] : [])]);
    const title = each.DisplayName || each.Name;
    const step: Step = { name: each.Name, title, type: each.Type, needs: [...needs], ...(branch ? { branch } : {}) };
    if (each.Type !== "Condition") return [step];
    const inside = (["True", "False"] as const).flatMap((outcome) =>
      stepsOf((branches[outcome] as WireStep[] | null | undefined) ?? [], { condition: each.Name, outcome }),
    );
    return [step, ...inside];
  });
}

/** Return the names in expressions such as `{"Get": "Steps.train.ModelArtifacts"}`, wherever they stand. */
function stepsReadBy(value: unknown): string[] {
  if (Array.isArray(value)) return value.flatMap(stepsReadBy);
  if (typeof value !== "object" || value === null) return [];
  const get = (value as { Get?: unknown }).Get;
  const path = typeof get === "string" ? /^Steps\.([^.[]+)/.exec(get) : null;
  return path ? [path[1]!] : Object.values(value).flatMap(stepsReadBy);
}

function isOtherBranch(step: Step, states: ReadonlyMap<string, StepState>): boolean {
  if (!step.branch) return false;
  const outcome = states.get(step.branch.condition)?.Metadata?.["Condition"]?.Outcome;
  return outcome !== undefined && outcome !== step.branch.outcome;
}
