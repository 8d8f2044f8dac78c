import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";

import { currentSession } from "../service";
import { Failure } from "./failure";

interface ConfirmedProps {
  /** Text of the button that asks. */
  label: string;
  /** Text of the button that does it, if it is another one. */
  action?: string;
  /** What will happen, as a question. */
  question: string;
  /** What there is to say about it. */
  children?: ComponentChildren;
  isDisabled?: boolean;
  run: () => Promise<unknown>;
}

/** A button for what cannot be undone: it asks first. A read-only session has none. */
export function Confirmed({ label, action = label, question, children, isDisabled = false, run }: ConfirmedProps) {
  const [state, setState] = useState<"idle" | "asks" | "runs">("idle");
  const [error, setError] = useState<unknown>();
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
      <button type="button" disabled={isDisabled} onClick={() => state === "idle" && setState("asks")}>
        {label}…
      </button>
      {state === "asks" && (
        <Question title={question} action={action} onConfirm={() => void confirm()} onCancel={() => setState("idle")}>
          {children}
        </Question>
      )}
      {error !== undefined && <Failure error={error} />}
    </>
  );
}

interface QuestionProps {
  title: string;
  action: string;
  children: ComponentChildren;
  onConfirm: () => void;
  onCancel: () => void;
}

function Question({ title, action, children, onConfirm, onCancel }: QuestionProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  const isConfirmed = useRef(false);
  const id = useId();
  useEffect(() => {
    // The browser keeps the focus inside, at "Cancel" first, and Escape closes it.
    dialog.current?.showModal();
  }, []);
  const close = (confirmed: boolean): void => {
    isConfirmed.current = confirmed;
    // Closing gives the focus back, which taking it out of the document would not.
    dialog.current?.close();
  };
  return (
    <dialog
      ref={dialog}
      aria-labelledby={id}
      class="confirm"
      onClose={() => (isConfirmed.current ? onConfirm() : onCancel())}
    >
      <h2 id={id}>{title}</h2>
      {children}
      <p class="buttons">
        <button type="button" onClick={() => close(false)}>
          Cancel
        </button>
        <button type="button" class="primary" onClick={() => close(true)}>
          {action}
        </button>
      </p>
    </dialog>
  );
}
