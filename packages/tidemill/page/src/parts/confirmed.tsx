import { useEffect, useRef, useState } from "preact/hooks";

import { currentSession } from "../service";
import { Failure } from "./failure";

interface ConfirmedProps {
  label: string;
  /** What will happen, as a question. */
  question: string;
  run: () => Promise<unknown>;
}

/** A button for what cannot be undone: it asks first. A read-only session has none. */
export function Confirmed({ label, question, run }: ConfirmedProps) {
  const [state, setState] = useState<"idle" | "asks" | "runs">("idle");
  const [error, setError] = useState<unknown>();
  const button = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    if (state === "asks") button.current?.focus();
  }, [state]);
  if (currentSession()?.readOnly) return null;
  const confirm = async (): Promise<void> => {
    setState("runs");
    setError(undefined);
    try {
      await run();
    } catch (reason) {
      setError(reason);
    }
    setState("idle");
  };
  return (
    <>
      {state === "asks" ? (
        <span class="question" role="group" aria-label={question}>
          {question}{" "}
          <button type="button" class="danger" ref={button} onClick={() => void confirm()}>
            {label}
          </button>{" "}
          <button type="button" onClick={() => setState("idle")}>
            Cancel
          </button>
        </span>
      ) : (
        <button type="button" disabled={state === "runs"} onClick={() => setState("asks")}>
          {label}
        </button>
      )}
      {error !== undefined && <Failure error={error} />}
    </>
  );
}
