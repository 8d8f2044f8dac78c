import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

interface ConfirmProps {
  title: string;
  /** Text of the button that does it. */
  action: string;
  children: ComponentChildren;
  onConfirm: () => void;
  onCancel: () => void;
  /** Whether the button can be pressed. */
  isReady?: boolean;
}

/** A question before something that cannot be undone, or a form; Escape is "no". */
export function Confirm({ title, action, children, onConfirm, onCancel, isReady = true }: ConfirmProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    // The browser keeps the focus inside, and gives it back at the end.
    dialog.current?.showModal();
  }, []);
  return (
    <dialog ref={dialog} aria-labelledby="confirm-title" onClose={onCancel} class="confirm">
      <form
        method="dialog"
        onSubmit={(event) => {
          event.preventDefault();
          onConfirm();
        }}
      >
        <h2 id="confirm-title">{title}</h2>
        {children}
        <p class="buttons">
          <button type="button" onClick={() => dialog.current?.close()}>
            Cancel
          </button>
          <button type="submit" class="primary" disabled={!isReady}>
            {action}
          </button>
        </p>
      </form>
    </dialog>
  );
}
