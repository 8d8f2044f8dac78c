import { useEffect, useRef, useState } from "preact/hooks";

import { KIND_NAMES, KINDS } from "../job_kinds";
import { columnOf, DEFAULT_COLUMNS, type Filter, type JobRows } from "../job_rows";
import { setQuery } from "../location";
import { cutMiddle, shown } from "../shown_text";

const STATUSES = ["InProgress", "Stopping", "Completed", "Failed", "Stopped"];
const TYPING_MS = 150;
const COLUMNS_SHOWN = 200;

interface JobFiltersProps {
  jobs: JobRows;
  filter: Filter;
  chosen: readonly string[];
  version: number;
  onColumns: (columns: readonly string[]) => void;
}

/** What the table of jobs shows; all of it is in the address. */
export function JobFilters({ jobs, filter, chosen, version, onColumns }: JobFiltersProps) {
  return (
    <div class="filters">
      <SearchField value={filter.text} />
      <Toggles
        legend="Kind"
        parameter="kind"
        chosen={filter.kinds}
        choices={KIND_NAMES.map((kind) => [kind, KINDS[kind].title])}
      />
      <Toggles
        legend="Status"
        parameter="status"
        chosen={filter.statuses}
        choices={STATUSES.map((status) => [status, `${status} ${jobs.count(status, filter.kinds)}`])}
      />
      <Columns jobs={jobs} chosen={chosen} version={version} onColumns={onColumns} />
    </div>
  );
}

function SearchField({ value }: { value: string }) {
  const [text, setText] = useState(value);
  const timer = useRef(0);
  const sent = useRef(value);
  // Another view must not get what was typed last.
  useEffect(() => () => window.clearTimeout(timer.current), []);
  useEffect(() => {
    // The address changed by something else, e.g. the browser's way back.
    if (value !== sent.current) setText((sent.current = value));
  }, [value]);
  const type = (typed: string): void => {
    setText(typed);
    window.clearTimeout(timer.current);
    timer.current = window.setTimeout(() => setQuery({ q: (sent.current = typed) }), TYPING_MS);
  };
  return (
    <input
      id="jobs-search"
      type="search"
      aria-label="Search names, hyperparameters and tags"
      placeholder="Search names, hyperparameters, tags"
      value={text}
      onInput={(event) => type(event.currentTarget.value)}
    />
  );
}

interface TogglesProps {
  legend: string;
  parameter: string;
  chosen: readonly string[];
  choices: readonly (readonly [string, string])[];
}

function Toggles({ legend, parameter, chosen, choices }: TogglesProps) {
  const toggle = (value: string): void => {
    const next = chosen.includes(value) ? chosen.filter((each) => each !== value) : [...chosen, value];
    setQuery({ [parameter]: next });
  };
  return (
    <span role="group" aria-label={legend} class="toggles">
      {choices.map(([value, title]) => (
        <button key={value} type="button" aria-pressed={chosen.includes(value)} onClick={() => toggle(value)}>
          {title}
        </button>
      ))}
    </span>
  );
}

function Columns({ jobs, chosen, onColumns }: Omit<JobFiltersProps, "filter">) {
  const [isOpen, setOpen] = useState(false);
  const [text, setText] = useState("");
  const all = isOpen ? [...new Set([...chosen, ...jobs.columns().map((column) => column.id)])] : [];
  const found = all.filter((id) => id.toLowerCase().includes(text.toLowerCase()));
  const toggle = (id: string, isChosen: boolean): void => {
    const next = isChosen ? [...chosen, id] : chosen.filter((each) => each !== id);
    onColumns(next.length ? next : ["name"]);
  };
  return (
    <details class="columns" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>Columns</summary>
      <div class="choices">
        <input
          type="search"
          aria-label="Find a column"
          placeholder="Find a column"
          value={text}
          onInput={(event) => setText(event.currentTarget.value)}
        />
        {found.slice(0, COLUMNS_SHOWN).map((id) => (
          <label key={id}>
            <input
              type="checkbox"
              checked={chosen.includes(id)}
              onChange={(event) => toggle(id, event.currentTarget.checked)}
            />{" "}
            {shown(cutMiddle(nameOf(id), 40))}
          </label>
        ))}
        {found.length > COLUMNS_SHOWN && <p>{found.length - COLUMNS_SHOWN} more</p>}
        <button type="button" onClick={() => onColumns(DEFAULT_COLUMNS)}>
          The usual columns
        </button>
      </div>
    </details>
  );
}

const GROUPS: Readonly<Record<string, string>> = { hp: "hyperparameter", metric: "metric", tag: "tag" };

function nameOf(id: string): string {
  const group = GROUPS[id.slice(0, id.indexOf(":"))];
  return group ? `${group} ${columnOf(id).title}` : columnOf(id).title;
}
