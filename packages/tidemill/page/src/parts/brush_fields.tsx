import { useState } from "preact/hooks";

import { shown } from "../shown_text";
import type { Axis, Brush } from "../trials";

interface BrushFieldsProps {
  axes: readonly Axis[];
  brushes: ReadonlyMap<string, Brush>;
  onBrush: (axis: string, brush: Brush | null) => void;
}

/** What can be selected over the axes, as fields: for the keyboard, and for exact values. */
export function BrushFields({ axes, brushes, onBrush }: BrushFieldsProps) {
  return (
    <details class="brushes">
      <summary>Select trainings by their values</summary>
      <div class="fields">
        {axes.map((axis) => {
          const brush = brushes.get(axis.name);
          const onChange = (next: Brush | null): void => onBrush(axis.name, next);
          return axis.categories ? (
            <CategoryField key={axis.name} {...{ axis, brush, onChange }} />
          ) : (
            <NumberFields key={axis.name} {...{ axis, brush, onChange }} />
          );
        })}
      </div>
    </details>
  );
}

interface FieldProps {
  axis: Axis;
  brush: Brush | undefined;
  onChange: (brush: Brush | null) => void;
}

function CategoryField({ axis, brush, onChange }: FieldProps) {
  const chosen = brush && brush[0] === brush[1] ? axis.scale.text(brush[0]) : "";
  return (
    <label>
      {shown(axis.name)}{" "}
      <select
        value={chosen}
        onChange={(event) => {
          const place = event.currentTarget.selectedIndex > 0 ? axis.scale.at(event.currentTarget.value) : null;
          onChange(place === null ? null : [place, place]);
        }}
      >
        <option value="">{brush && !chosen ? "several" : "all"}</option>
        {axis.categories?.map((value) => (
          <option key={value} value={value}>
            {shown(value)}
          </option>
        ))}
      </select>
    </label>
  );
}

function NumberFields({ axis, brush, onChange }: FieldProps) {
  const change = (end: 0 | 1, text: string): void => {
    const place = axis.scale.at(text) ?? end;
    const next: Brush = end === 0 ? [place, brush?.[1] ?? 1] : [brush?.[0] ?? 0, place];
    onChange(next[0] <= 0 && next[1] >= 1 ? null : next);
  };
  return (
    <fieldset>
      <legend>{shown(axis.name)}</legend>
      {([0, 1] as const).map((end) => (
        <NumberField
          key={end}
          label={`${shown(axis.name)}: ${end ? "most" : "least"}`}
          value={axis.scale.text(brush?.[end] ?? end)}
          onChange={(text) => change(end, text)}
        />
      ))}
    </fieldset>
  );
}

interface NumberFieldProps {
  label: string;
  value: string;
  onChange: (text: string) => void;
}

/** A field whose unfinished text survives that the view is drawn again, e.g. because a training has ended. */
function NumberField({ label, value, onChange }: NumberFieldProps) {
  const [draft, setDraft] = useState<string | null>(null);
  return (
    <input
      inputMode="decimal"
      size={9}
      aria-label={label}
      value={draft ?? value}
      onInput={(event) => setDraft(event.currentTarget.value)}
      onChange={(event) => {
        setDraft(null);
        onChange(event.currentTarget.value);
      }}
      onBlur={() => setDraft(null)}
    />
  );
}
