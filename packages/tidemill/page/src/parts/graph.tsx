/** A pipeline as a graph: its steps as buttons over the lines between them. */

import { useMemo } from "preact/hooks";

import { layoutOf, type Place } from "../graph";
import type { Step } from "../pipeline";
import { cut, shown } from "../shown_text";
import { toneOf } from "./state";

interface GraphProps {
  steps: readonly Step[];
  /** The status of each step by its name; empty for a definition that is not executed. */
  statuses: ReadonlyMap<string, string>;
  chosen: string | null;
  onChoose: (step: string) => void;
}

const WIDTH = 180;
const HEIGHT = 58;
const GAP_X = 28;
const GAP_Y = 44;
const MARGIN = 4;

const WORDS: Readonly<Record<string, string>> = { NotExecuted: "not executed", Waiting: "waiting" };

export function Graph({ steps, statuses, chosen, onChoose }: GraphProps) {
  const layout = useMemo(() => layoutOf(steps), [steps]);
  const branches = new Map(steps.map((step) => [step.name, step.branch]));
  const width = layout.columns * (WIDTH + GAP_X) - GAP_X + 2 * MARGIN;
  const height = layout.layers * (HEIGHT + GAP_Y) - GAP_Y + 2 * MARGIN;
  const place = (name: string): Place => layout.places.get(name)!;
  return (
    <div class="wide graph" role="group" aria-label="Steps">
      <div class="graph-area" style={{ width: `${width}px`, height: `${height}px` }}>
        <svg width={width} height={height} aria-hidden="true">
          {layout.edges.map(({ from, to }) => {
            const branch = branches.get(to);
            const label = branch?.condition === from ? branch.outcome : "";
            return <Edge key={`${from} ${to}`} from={place(from)} to={place(to)} label={label} />;
          })}
        </svg>
        {steps.map((step) => (
          <Node key={step.name} {...{ step, onChoose }} place={place(step.name)} status={statuses.get(step.name)} chosen={step.name === chosen} />
        ))}
      </div>
    </div>
  );
}

interface NodeProps {
  step: Step;
  place: Place;
  status: string | undefined;
  chosen: boolean;
  onChoose: (step: string) => void;
}

function Node({ step, place, status, chosen, onChoose }: NodeProps) {
  const { left, top } = cornerOf(place);
  const title = cut(step.title, 40);
  return (
    <button
      type="button"
      class={`node ${status ? toneOf(status) : ""} ${status === "NotExecuted" ? "unused" : ""}`}
      style={{ left: `${left}px`, top: `${top}px`, width: `${WIDTH}px`, height: `${HEIGHT}px` }}
      aria-pressed={chosen}
      title={shown(step.title)}
      onClick={() => onChoose(step.name)}
    >
      <span class="node-title">
        {shown(title.text)}
        {title.left > 0 && "…"}
      </span>
      <span class="node-state">
        {shown(step.type)}
        {status && `: ${WORDS[status] ?? shown(status)}`}
      </span>
    </button>
  );
}

function cornerOf({ layer, column }: Place): { left: number; top: number } {
  return { left: MARGIN + column * (WIDTH + GAP_X), top: MARGIN + layer * (HEIGHT + GAP_Y) };
}

/** A line from the bottom of a step to the top of one that needs it. */
function Edge({ from, to, label }: { from: Place; to: Place; label: string }) {
  const begin = cornerOf(from);
  const end = cornerOf(to);
  const [x1, y1] = [begin.left + WIDTH / 2, begin.top + HEIGHT];
  const [x2, y2] = [end.left + WIDTH / 2, end.top - 5];
  const bend = Math.max(24, (y2 - y1) / 2);
  return (
    <g class="edge">
      <path d={`M${x1} ${y1}C${x1} ${y1 + bend} ${x2} ${y2 - bend} ${x2} ${y2}`} />
      <path class="head" d={`M${x2 - 4} ${y2 - 3}L${x2} ${y2 + 4}L${x2 + 4} ${y2 - 3}Z`} />
      {label && (
        <text x={x2 + 6} y={y2 - 8}>
          {label}
        </text>
      )}
    </g>
  );
}
