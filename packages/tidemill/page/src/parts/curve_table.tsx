import { useState } from "preact/hooks";

import { elapsed, stepText } from "../axis_text";
import { time } from "../numbers";
import { picked, summaryOf, thinned, type Columns, type XKind } from "../series";
import { shown } from "../shown_text";

interface CurveTableProps {
  labels: readonly string[];
  columns: readonly Columns[];
  kind: XKind;
  format: (value: number) => string;
  title: string;
}

/** Most rows of a series: more are no help to read. */
const ROWS = 100;

/** What a chart shows, as tables: for screen readers, and for exact values. Nothing is computed before it is opened. */
export function CurveTable(props: CurveTableProps) {
  const [open, setOpen] = useState(false);
  return (
    <details class="curve-table" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>Values as a table</summary>
      {open && <Tables {...props} />}
    </details>
  );
}

function Tables({ labels, columns, kind, format, title }: CurveTableProps) {
  return (
    <>
      <div class="wide" tabIndex={0} role="region" aria-label={`${shown(title)}: summary`}>
        <table>
          <thead>
            <tr>
              {["Series", "Points", "First", "Last", "Least", "Greatest"].map((each) => (
                <th key={each} scope="col">
                  {each}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {labels.map((label, i) => {
              const { count, first, last, min, max } = summaryOf(columns[i]!);
              return (
                <tr key={label}>
                  <th scope="row">{shown(label)}</th>
                  <td>{count.toLocaleString("en")}</td>
                  {[first, last, min, max].map((each, column) => (
                    <td key={column}>{format(each)}</td>
                  ))}
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
      {labels.map((label, i) => (
        <Points key={label} {...{ label, kind, format }} columns={columns[i]!} />
      ))}
    </>
  );
}

function Points({ label, columns, kind, format }: { label: string; columns: Columns; kind: XKind; format: (value: number) => string }) {
  const { x } = columns;
  const kept = x.length > ROWS ? thinned(columns, x[0]!, x[x.length - 1]!, ROWS / 4) : [...x.keys()];
  const { x: places, y: values } = picked(columns, kept);
  const shownX = { step: stepText, time, relative: elapsed }[kind];
  return (
    <div class="wide" tabIndex={0} role="region" aria-label={`Points of ${shown(label)}`}>
      <table>
        <caption>
          {shown(label)}
          {kept.length < x.length && `: ${kept.length} of ${x.length.toLocaleString("en")} points, peaks among them`}
        </caption>
        <thead>
          <tr>
            <th scope="col">{{ step: "Step", time: "Time", relative: "After" }[kind]}</th>
            <th scope="col">Value</th>
          </tr>
        </thead>
        <tbody>
          {Array.from(places, (place, row) => (
            <tr key={row}>
              <td>{shownX(place)}</td>
              <td>{format(values[row]!)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
