/** Parallel coordinates: a vertical axis for each hyperparameter and the objective, and a line for each training. */

import { useMemo, useRef, useState } from "preact/hooks";

import { cut, shown } from "../shown_text";
import { isInside, objectiveOf, placeOf, type Axis, type Brush, type TrialSummary } from "../trials";
import { useWidth } from "./width";

interface ParallelProps {
  axes: readonly Axis[];
  trials: readonly TrialSummary[];
  best: string | undefined;
  brushes: ReadonlyMap<string, Brush>;
  onBrush: (axis: string, brush: Brush | null) => void;
}

const HEIGHT = 260;
const TOP = 34;
const BOTTOM = 14;
const AXIS_WIDTH = 110;
const SPAN = HEIGHT - TOP - BOTTOM;

export function Parallel({ axes, trials, best, brushes, onBrush }: ParallelProps) {
  const [element, width] = useWidth();
  const full = Math.max(width, axes.length * AXIS_WIDTH);
  const step = full / axes.length;
  const x = (index: number): number => step * (index + 0.5);
  const lines = useMemo(() => linesOf(trials, axes), [trials, axes]);
  const inside = trials.filter((trial) => isInside(trial, axes, brushes)).length;
  const label = `${inside} of ${trials.length} trainings are selected. The fields below select, and the table has their values.`;
  return (
    <div ref={element} class="wide" tabIndex={0} role="region" aria-label="Parallel coordinates">
      <svg class="parallel" width={full} height={HEIGHT} role="img" aria-label={label}>
        <g class="trials">
          {lines.map(({ trial, places, quality }) => (
            <path
              key={trial.TrainingJobName}
              class={`trial ${isInside(trial, axes, brushes) ? "" : "outside"} ${trial.TrainingJobName === best ? "best" : ""}`}
              style={quality === null ? {} : { stroke: `color-mix(in oklab, var(--better) ${Math.round(quality * 100)}%, var(--worse))` }}
              d={pathOf(places, x)}
            >
              <title>{shown(trial.TrainingJobName)}</title>
            </path>
          ))}
        </g>
        {axes.map((axis, i) => (
          <AxisLine key={axis.name} axis={axis} x={x(i)} width={step} brush={brushes.get(axis.name)} onBrush={(brush) => onBrush(axis.name, brush)} />
        ))}
      </svg>
    </div>
  );
}

interface TrialLine {
  trial: TrialSummary;
  places: (number | null)[];
  /** Its objective between the least (0) and the greatest (1). */
  quality: number | null;
}

function linesOf(trials: readonly TrialSummary[], axes: readonly Axis[]): TrialLine[] {
  const objective = axes.at(-1);
  const lines = trials.map((trial) => ({
    trial,
    places: axes.map((axis) => placeOf(trial, axis)),
    quality: objective && objectiveOf(trial) !== undefined ? placeOf(trial, objective) : null,
  }));
  // The greatest values are drawn last, above the others.
  return lines.sort((a, b) => (a.quality ?? -1) - (b.quality ?? -1));
}

function y(place: number): number {
  return TOP + (1 - place) * SPAN;
}

/** Return the path through the places; a missing value interrupts the line. */
function pathOf(places: readonly (number | null)[], x: (index: number) => number): string {
  let open = false;
  return places
    .map((place, i) => {
      if (place === null) {
        open = false;
        return "";
      }
      const command = open ? "L" : "M";
      open = true;
      return `${command}${x(i).toFixed(1)} ${y(place).toFixed(1)}`;
    })
    .join("");
}

interface AxisLineProps {
  axis: Axis;
  x: number;
  width: number;
  brush: Brush | undefined;
  onBrush: (brush: Brush | null) => void;
}

/** An axis, over which one drags to select a part of it; a click selects all of it again. */
function AxisLine({ axis, x, width, brush, onBrush }: AxisLineProps) {
  const [from, setFrom] = useState<number | null>(null);
  const area = useRef<SVGRectElement>(null);
  const placeAt = (event: PointerEvent): number => {
    const { top } = area.current!.getBoundingClientRect();
    return Math.min(1, Math.max(0, 1 - (event.clientY - top) / SPAN));
  };
  const end = (event: PointerEvent): void => {
    if (from !== null && Math.abs(placeAt(event) - from) * SPAN < 3) onBrush(null);
    setFrom(null);
  };
  const title = cut(axis.name, Math.max(8, Math.floor(width / 8)));
  return (
    <g class="axis" transform={`translate(${x.toFixed(1)} 0)`}>
      <text class="name" y="14" text-anchor="middle">
        <title>{shown(axis.name)}</title>
        {shown(title.text)}
        {title.left > 0 && "…"}
      </text>
      <line y1={TOP} y2={TOP + SPAN} />
      {axis.scale.ticks.map((tick) => (
        <text key={tick.text} x="7" y={y(tick.at) + 4}>
          {shown(cut(tick.text, 14).text)}
        </text>
      ))}
      {brush && <rect class="brush" x="-6" width="12" y={y(brush[1])} height={Math.max(2, (brush[1] - brush[0]) * SPAN)} />}
      <rect
        ref={area}
        class="grip"
        x="-14"
        width="28"
        y={TOP}
        height={SPAN}
        onPointerDown={(event) => {
          event.currentTarget.setPointerCapture(event.pointerId);
          setFrom(placeAt(event));
        }}
        onPointerMove={(event) => {
          if (from === null) return;
          const place = placeAt(event);
          onBrush([Math.min(from, place), Math.max(from, place)]);
        }}
        onPointerUp={end}
        onPointerCancel={end}
      />
    </g>
  );
}
