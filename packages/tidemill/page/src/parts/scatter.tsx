/** A hyperparameter against the objective: a mark for each training. */

import { shown } from "../shown_text";
import { isInside, placeOf, type Axis, type Brush, type TrialSummary } from "../trials";
import { useWidth } from "./width";

interface ScatterProps {
  x: Axis;
  y: Axis;
  /** All axes: what their brushes do not select is faint. */
  axes: readonly Axis[];
  brushes: ReadonlyMap<string, Brush>;
  trials: readonly TrialSummary[];
  best: string | undefined;
}

const HEIGHT = 240;
const LEFT = 64;
const RIGHT = 16;
const TOP = 10;
const BOTTOM = 38;

export function Scatter({ x, y, axes, brushes, trials, best }: ScatterProps) {
  const [element, width] = useWidth();
  const px = (place: number): number => LEFT + place * (width - LEFT - RIGHT);
  const py = (place: number): number => HEIGHT - BOTTOM - place * (HEIGHT - TOP - BOTTOM);
  const marks = trials.flatMap((trial) => {
    const [across, up] = [placeOf(trial, x), placeOf(trial, y)];
    return across === null || up === null ? [] : [{ trial, across, up }];
  });
  return (
    <div ref={element}>
      <svg class="scatter" width={width} height={HEIGHT} role="img" aria-label={`${shown(y.name)} by ${shown(x.name)}: ${marks.length} trainings`}>
        {x.scale.ticks.map((tick) => (
          <g key={tick.text}>
            <line x1={px(tick.at)} x2={px(tick.at)} y1={TOP} y2={HEIGHT - BOTTOM} />
            <text x={px(tick.at)} y={HEIGHT - BOTTOM + 15} text-anchor={tick.at < 0.1 ? "start" : tick.at > 0.9 ? "end" : "middle"}>
              {shown(tick.text)}
            </text>
          </g>
        ))}
        {y.scale.ticks.map((tick) => (
          <g key={tick.text}>
            <line x1={LEFT} x2={width - RIGHT} y1={py(tick.at)} y2={py(tick.at)} />
            <text x={LEFT - 6} y={py(tick.at) + 4} text-anchor="end">
              {shown(tick.text)}
            </text>
          </g>
        ))}
        <text class="name" x={width - RIGHT} y={HEIGHT - 6} text-anchor="end">
          {shown(x.name)}
        </text>
        {marks.map(({ trial, across, up }) => (
          <circle
            key={trial.TrainingJobName}
            cx={px(across)}
            cy={py(up)}
            r={trial.TrainingJobName === best ? 6 : 4}
            class={`${isInside(trial, axes, brushes) ? "" : "outside"} ${trial.TrainingJobName === best ? "best" : ""}`}
          >
            <title>{`${shown(trial.TrainingJobName)}: ${shown(x.textOf(trial)!)}, ${shown(y.textOf(trial)!)}`}</title>
          </circle>
        ))}
      </svg>
    </div>
  );
}
