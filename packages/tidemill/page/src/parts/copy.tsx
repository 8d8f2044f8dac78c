import { useState } from "preact/hooks";

/** Copies a text to the clipboard. */
export function Copy({ text, label = "Copy" }: { text: string; label?: string }) {
  const [state, setState] = useState("");
  const copy = async (): Promise<void> => {
    try {
      await navigator.clipboard.writeText(text);
      setState("Copied");
    } catch {
      setState("The browser did not allow it");
    }
  };
  return (
    <span class="copy">
      <button type="button" onClick={() => void copy()}>
        {label}
      </button>{" "}
      <span role="status">{state}</span>
    </span>
  );
}
