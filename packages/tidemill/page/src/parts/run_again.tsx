import { useState } from "preact/hooks";

import { createJob } from "../job_calls";
import { KINDS, pathOfJob, type Kind } from "../job_kinds";
import { changed, changesOf, nextName, ownTags, type Changes, type Request } from "../job_request";
import { go, href } from "../location";
import { Failure } from "./failure";

interface RunAgainProps {
  kind: Kind;
  name: string;
  request: Request;
  tags: Record<string, string>;
}

/** A form that sends the request of a job again, with changes. */
export function RunAgain({ kind, name, request, tags }: RunAgainProps) {
  const [changes, setChanges] = useState(() => changesOf(kind, request, nextName(kind, name, new Date())));
  const [text, setText] = useState<string | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [isSending, setSending] = useState(false);
  const next = (): Request => {
    if (text !== null) return JSON.parse(text) as Request;
    const pairs = ownTags(tags).map(([Key, Value]) => ({ Key, Value }));
    return { ...changed(kind, request, changes), ...(pairs.length ? { Tags: pairs } : {}) };
  };
  const send = async (): Promise<void> => {
    setSending(true);
    setError(null);
    try {
      const wanted = next();
      await createJob(kind, wanted);
      go(href(pathOfJob(kind, String(wanted[`${KINDS[kind].resource}Name`]))));
    } catch (failure) {
      setError(failure);
    }
    setSending(false);
  };
  return (
    <form
      class="again"
      aria-label="Run again"
      onSubmit={(event) => {
        event.preventDefault();
        void send();
      }}
    >
      {text === null ? (
        <Fields kind={kind} changes={changes} onChange={setChanges} />
      ) : (
        <label>
          The request, as JSON
          <textarea
            rows={24}
            spellcheck={false}
            value={text}
            onInput={(event) => setText(event.currentTarget.value)}
          />
        </label>
      )}
      {error !== null && <Failure error={error} />}
      <p class="buttons">
        <button type="submit" class="primary" disabled={isSending}>
          Start the job
        </button>
        <button type="button" onClick={() => setText(text === null ? JSON.stringify(next(), null, 2) : null)}>
          {text === null ? "Edit the request as JSON" : "Back to the form"}
        </button>
      </p>
    </form>
  );
}

interface FieldsProps {
  kind: Kind;
  changes: Changes;
  onChange: (changes: Changes) => void;
}

function Fields({ kind, changes, onChange }: FieldsProps) {
  return (
    <>
      <label>
        Name
        <input
          value={changes.name}
          required
          maxLength={KINDS[kind].nameMax}
          pattern="[a-zA-Z0-9](-*[a-zA-Z0-9])*"
          title="Letters, digits and hyphens"
          onInput={(event) => onChange({ ...changes, name: event.currentTarget.value })}
        />
      </label>
      {changes.instanceType && (
        <div class="side">
          <label>
            Instance type
            <input
              value={changes.instanceType}
              required
              onInput={(event) => onChange({ ...changes, instanceType: event.currentTarget.value })}
            />
          </label>
          <label>
            Instances
            <input
              type="number"
              min={1}
              required
              value={Number.isNaN(changes.instanceCount) ? "" : changes.instanceCount}
              onInput={(event) => onChange({ ...changes, instanceCount: event.currentTarget.valueAsNumber })}
            />
          </label>
        </div>
      )}
      {kind === "training" && (
        <Pairs
          title="Hyperparameters"
          one="hyperparameter"
          pairs={changes.hyperparameters}
          onChange={(hyperparameters) => onChange({ ...changes, hyperparameters })}
        />
      )}
      <Pairs
        title="Environment variables"
        one="environment variable"
        pairs={changes.environment}
        onChange={(environment) => onChange({ ...changes, environment })}
      />
    </>
  );
}

type NamedValue = readonly [string, string];

interface PairsProps {
  title: string;
  one: string;
  pairs: readonly NamedValue[];
  onChange: (pairs: NamedValue[]) => void;
}

function Pairs({ title, one, pairs, onChange }: PairsProps) {
  const replace = (index: number, pair: NamedValue): void =>
    onChange(pairs.map((each, at) => (at === index ? pair : each)));
  return (
    <fieldset>
      <legend>{title}</legend>
      {pairs.map(([name, value], index) => (
        <div class="pair" key={index}>
          <input
            aria-label={`Name of ${one} ${index + 1}`}
            value={name}
            onInput={(event) => replace(index, [event.currentTarget.value, value])}
          />
          <input
            aria-label={`Value of ${one} ${index + 1}`}
            value={value}
            onInput={(event) => replace(index, [name, event.currentTarget.value])}
          />
          <button
            type="button"
            aria-label={`Remove ${one} ${index + 1}`}
            onClick={() => onChange(pairs.filter((_, at) => at !== index))}
          >
            ×
          </button>
        </div>
      ))}
      <button type="button" onClick={() => onChange([...pairs, ["", ""]])}>
        Add one
      </button>
    </fieldset>
  );
}
