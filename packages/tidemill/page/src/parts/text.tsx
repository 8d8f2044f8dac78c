import { useState } from "preact/hooks";

import { cut, shown } from "../shown_text";

interface TextProps {
  /** Text of a user. */
  value: string;
  /** Characters that are shown before the rest is asked for. */
  max?: number;
  /** Keep line breaks. */
  lines?: boolean;
}

/** Text of a user: hidden characters are visible, and a long text is cut, with a button for more of it. */
export function Text({ value, max = 500, lines = false }: TextProps) {
  const [limit, setLimit] = useState(max);
  const { text, left } = cut(value, limit);
  return (
    <span class={lines ? "text lines" : "text"}>
      {shown(text, { lines })}
      {left > 0 && (
        <button type="button" class="more" onClick={() => setLimit(limit * 10)}>
          … {left.toLocaleString("en")} more characters
        </button>
      )}
    </span>
  );
}
